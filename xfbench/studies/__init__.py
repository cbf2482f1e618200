"""Studies: experiments that answer published questions on this machine.

A TOML file defines a study (`planning/study_form.py`, `planning/experiment.py`). `running.py` plans
its launches, `analyses.py` evaluates its records, and `answer.py` builds the answer.
"""
