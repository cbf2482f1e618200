"""One launch, from a request to its record.

- `launch.py` does one launch.
- `job.py` writes the worker's job and reads the replies.
- `starting.py` builds the start commands.
- `watch.py` detects failed ranks.
- `ranks.py` merges the ranks' replies.
- `validity.py` and `canary.py` detect invalid launches.
- `record_builder.py` builds the record.
- `job_queue.py` submits launches to Slurm.
- `dry_run.py` lists the commands without running them.
- `probing.py` and `tracing.py` do launches that probe features or write traces.
"""
