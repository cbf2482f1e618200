"""Studies: experiments that answer questions of publications by measurements on this machine.

- A TOML file defines each study. `planning/experiment.py` and `planning/study_form.py` read the
  file.
- `running.py` plans the launches.
- `analyses.py` and its sibling modules turn the records of the launches into findings.
- `answer.py` combines the findings and the published values in one answer.
"""
