"""Published figures as records: one TOML file per source, with its citation and figures.

xfbench neither measures nor computes these figures. A number is stored as printed, and what the
source does not say is omitted. `quantity` may end in a comma and a qualifier of the number, such as
"about" or "mean". If several networks share a number, each network has a record.

A record's `created` is the start of the source's year, because only the year is known. A record's
id depends only on its content, and never changes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from xfbench.base import bibtex, paths
from xfbench.model.external_record import About, Citation, Figure
from xfbench.model.record import Record
from xfbench.model.sealed import DocumentPart


class _PrintedFigure(Figure):
    """A figure as the TOML file states it.

    - `where`: its place in the source: section, figure, table or slide.
    - `workloads`: the networks that share the figure.
    """

    where: str
    workloads: tuple[str, ...] = ()

    def figures(self, study: str) -> Iterator[Figure]:
        """Yield one figure for each network. Each figure names the study `study`."""
        shared_about = (self.about or About()).model_copy(update={"study": study})
        fields = self.model_dump(exclude={"where", "workloads", "about"})
        for name in self.workloads or (shared_about.workload,):
            yield Figure(**fields, about=shared_about.model_copy(update={"workload": name}))


class _Sentence(DocumentPart):
    """What a source says, in our own words. `where` is the place in the source."""

    where: str
    text: str


class _StudyFindings(DocumentPart):
    """What a source says about the study `name`: sentences and printed figures."""

    name: str
    findings: tuple[_Sentence, ...]
    figures: tuple[_PrintedFigure, ...] = ()


class Source(DocumentPart):
    """A publication, with what it says about studies.

    `bibliography` has further fields of BibTeX that the source states, such as its pages.
    """

    key: str
    authors: tuple[str, ...]
    title: str
    venue: str
    year: int
    bibliography: Mapping[str, str] = {}
    studies: tuple[_StudyFindings, ...]

    @property
    def reference(self) -> str:
        """The source's authors, title, venue and year, in one line."""
        return f"{', '.join(self.authors)}: {self.title}. {self.venue}, {self.year}"

    def cite(self, where: str) -> Citation:
        """Return the citation of the place `where` in this source."""
        return Citation(key=self.key, title=self.reference, where=where)

    @property
    def bibtex(self) -> str:
        """The source as an entry of BibTeX."""
        is_meeting = any(word in self.venue for word in ("Conference", "Symposium", "Summit"))
        kind, place = (
            ("inproceedings", "booktitle") if is_meeting else ("techreport", "institution")
        )
        fields = {
            "author": " and ".join(self.authors),
            "title": f"{{{self.title}}}",
            place: self.venue,
            "year": str(self.year),
        }
        return bibtex.format_entry(kind, self.key, {**fields, **self.bibliography})


@dataclass(frozen=True)
class Finding:
    """What a source says about a study, in one sentence in our own words."""

    study: str
    sentence: str
    citation: Citation


@cache
def sources() -> tuple[Source, ...]:
    """Return every source, sorted by year and key."""
    files = sorted(paths.package_folder(__name__).glob("*.toml"))
    parsed = (Source.model_validate(tomllib.loads(file.read_text("utf-8"))) for file in files)
    return tuple(sorted(parsed, key=lambda source: (source.year, source.key)))


@cache
def records() -> tuple[Record, ...]:
    """Return a record for each published figure, in the order of the sources.

    The records have no request.
    """
    return tuple(
        Record.make(
            created=f"{source.year}-01-01T00:00:00.000Z",
            source="published",
            citation=source.cite(printed.where),
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


def records_of_study(name: str) -> tuple[Record, ...]:
    """Return the records of the published figures for the study `name`."""
    return tuple(
        record
        for record in records()
        if record.figure and record.figure.about and record.figure.about.study == name
    )


def findings(study: str | None = None) -> tuple[Finding, ...]:
    """Return the findings for the study `study`, or for all studies if `study` is None."""
    return tuple(
        Finding(answer.name, finding.text, source.cite(finding.where))
        for source in sources()
        for answer in source.studies
        if study in (None, answer.name)
        for finding in answer.findings
    )
