"""One launch, from a request to its record.

`launch.py` does one launch. `job.py` writes what a worker reads; `starting.py`, `ranks.py` and
`watch.py` start ranks and end them; `record_builder.py` makes the record of their replies.
`job_queue.py` lets Slurm do launches.
"""
