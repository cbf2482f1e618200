"""Studies: experiments that answer published questions on this machine.

A TOML file defines each study; `planning/experiment.py` and `planning/study_form.py` read it.
`running.py` plans the launches, `analyses.py` evaluates the records, and `answer.py` builds the
answer.
"""
