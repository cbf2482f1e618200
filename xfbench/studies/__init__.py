"""Studies: questions that were asked in print, as experiments that answer them here.

What a study is lies in a TOML file (`planning/study_form.py`, `planning/experiment.py`); how it is
run is `run`'s way (`running.py`); what its records say is the business of `analyses.py`, and of
`answer.py` to
tell.
"""
