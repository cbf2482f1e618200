"""A study's answer as one HTML page, of the report's pieces."""

from __future__ import annotations

from xfbench.report import page
from xfbench.studies import telling
from xfbench.studies.answer import Answer
from xfbench.studies.drawing import drawn


def html(answer: Answer) -> str:
    """The page."""
    parts = [
        {
            "finding": finding,
            "figures": drawn(finding, answer.published),
            "headers": telling.headers(finding),
            "rows": telling.rows(finding),
        }
        for finding in answer.findings
    ]
    return page.rendered(
        "study.html",
        answer=answer,
        study=answer.study,
        parts=parts,
        published={"headers": telling.BESIDE, "rows": telling.beside(answer)},
    )
