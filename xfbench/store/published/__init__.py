"""What others published, as records: a TOML file for each source, with its citation and figures.

Nothing in them is ours, or computed: a number is as it was printed, and what the source does not
say is left out. `quantity` says after a comma how a number was told: "about", a mean. Where
several networks have one number in common, each has a record.

A record's `created` is the first moment of the source's year, since no more is known; its id is
that of what it says, and the same every time.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from xfbench.base import paths
from xfbench.model.external_record import About, Citation, Figure
from xfbench.model.record import Record
from xfbench.model.sealed import DocumentPart


class _PrintedFigure(Figure):
    """A figure as the file has it: about each of `workloads`, where it is about several."""

    workloads: tuple[str, ...] = ()

    def figures(self, study: str) -> Iterator[Figure]:
        shared_about = (self.about or About()).model_copy(update={"study": study})
        fields = self.model_dump(exclude={"workloads", "about"})
        for name in self.workloads or (shared_about.workload,):
            yield Figure(**fields, about=shared_about.model_copy(update={"workload": name}))


class _StudyFindings(DocumentPart):
    """What a source has for one study: sentences, and what was printed as numbers."""

    name: str
    findings: tuple[str, ...]
    figures: tuple[_PrintedFigure, ...] = ()


class Source(DocumentPart):
    """A publication. `where` its figures are in it: tables, pages, or that nobody wrote it down."""

    key: str
    authors: tuple[str, ...]
    title: str
    venue: str
    year: int
    where: str
    studies: tuple[_StudyFindings, ...]

    @property
    def citation(self) -> Citation:
        """As records have it: the title with authors, venue and year."""
        reference = f"{', '.join(self.authors)}: {self.title}. {self.venue}, {self.year}"
        return Citation(key=self.key, title=reference, where=self.where)


@dataclass(frozen=True)
class Finding:
    """What a source says of a study, in a sentence of ours."""

    study: str
    sentence: str
    citation: Citation


@cache
def sources() -> tuple[Source, ...]:
    """Every source, oldest first."""
    files = sorted(paths.package_folder(__name__).glob("*.toml"))
    parsed = (Source.model_validate(tomllib.loads(file.read_text("utf-8"))) for file in files)
    return tuple(sorted(parsed, key=lambda source: (source.year, source.key)))


@cache
def records() -> tuple[Record, ...]:
    """A record for each figure, in the sources' order; nothing was asked for or measured."""
    return tuple(
        Record.make(
            created=f"{source.year}-01-01T00:00:00.000Z",
            source="published",
            citation=source.citation,
            figure=figure,
            status="ok",
            request=None,
            workload=None,
        )
        for source in sources()
        for study in source.studies
        for printed in study.figures
        for figure in printed.figures(study.name)
    )


def figures_of_study(name: str) -> tuple[Record, ...]:
    """The figures that answer one study; none for a study that no source has figures for."""
    return tuple(
        record
        for record in records()
        if record.figure and record.figure.about and record.figure.about.study == name
    )


def findings(study: str | None = None) -> tuple[Finding, ...]:
    """What the sources say of one study, or of all."""
    return tuple(
        Finding(answer.name, sentence, source.citation)
        for source in sources()
        for answer in source.studies
        if study in (None, answer.name)
        for sentence in answer.findings
    )
