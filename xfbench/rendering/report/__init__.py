"""The report: one HTML file that shows a results folder and needs nothing else.

Values go in (`content.py`, `sentences.py`, `figures.py`), a template turns them into a page
(`page.py`); what a record says is text and stays text (`xfbench/base/terminal_text.py`).
"""
