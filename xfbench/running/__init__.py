"""How a launch is run: from a cell to ranks in a framework's interpreter, and to its record.

`launch.py` does one launch, `job.py` writes what a worker reads, `starting.py`, `ranks.py`
and `watch.py` start ranks and end them, `reply.py` reads what they say, `record_builder.py`
makes the record of it. `queued.py` has it done by Slurm, `carry.py` where there is nothing of ours.
"""
