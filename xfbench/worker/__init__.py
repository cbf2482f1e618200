"""What runs inside a framework's interpreter: standard library and NumPy, Python 3.8 and later.

It travels as one zip file (`worker.pyz`), reads one job file and writes one reply file;
standard output and error belong to the framework.
"""
