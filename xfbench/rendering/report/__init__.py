"""The report: one self-contained HTML file that shows a results folder.

`content.py`, `sentences.py` and `figures.py` build the values, and `page.py` renders them with a
template. All texts from records are escaped (`xfbench/base/terminal_text.py`).
"""
