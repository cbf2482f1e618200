"""Studies: experiments that answer published questions on this machine.

A TOML file defines a study (`form.py`, `xfbench/experiment.py`). `running.py` plans its launches,
`analyses.py` evaluates its records, and `answer.py` builds the answer.
"""
