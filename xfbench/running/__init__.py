"""Runs launches: from a cell to ranks in a framework's interpreter, and to a record.

`launch.py` runs one launch. `job.py` writes what a worker reads. `starting.py` starts the ranks,
`watch.py` watches them, `reply.py` reads their replies, `ranks.py` merges them, and
`record_builder.py` builds the record. `queued.py` submits to Slurm; `carry.py` writes bundles.
"""
