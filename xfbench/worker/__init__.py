"""The worker: code that runs inside a framework's interpreter.

The worker needs Python 3.8 or later and no package except NumPy. It is packed as one zip file
(`worker.pyz`). It reads one job file and writes one reply file. Standard output and standard error
belong to the framework.
"""
