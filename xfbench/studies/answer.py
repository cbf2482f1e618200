"""A study's answer: its analyses over the records, what was published, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xfbench import adapter, published
from xfbench.analysis.leaderboard import Certificates
from xfbench.analysis.statistics import CLAIM_LAUNCHES, INDICATIVE_LAUNCHES
from xfbench.base import errors
from xfbench.experiment import Experiment
from xfbench.host import conditions, memory
from xfbench.records.elsewhere import Citation, Figure
from xfbench.records.machines import machine_class
from xfbench.records.record import Record
from xfbench.studies import analyses, cells, divergence, ends, learning, links, media, support
from xfbench.studies.finding import Finding
from xfbench.studies.form import Rising, Size
from xfbench.studies.wording import plural

ANALYSES: dict[str, analyses.Answer] = {
    "values": analyses.values,
    "spread": analyses.spread,
    "best_of": analyses.best_of,
    "ratio": analyses.ratio,
    "efficiency": analyses.efficiency,
    "learning_speedup": learning.learning_speedup,
    "diverged": divergence.diverged,
    "out_of_memory": ends.out_of_memory,
    "memory_per_image": ends.memory_per_image,
    "stops_growing": ends.stops_growing,
    "support": support.support,
    "support_evidence": support.evidence,
    "links": links.links,
}


@dataclass(frozen=True)
class Answer:
    """What a study came to: `missing` are cells without a result, each with the reason.

    `machines` and `span` say where and when; `launches` how many were ok, of which `disturbed`
    ran beside other work and `crowded` had more threads than processors; `spoiled` says why others
    of the same cells were not. `sentences` are what sources say of it, in our words.
    """

    study: Experiment
    size: Size
    findings: tuple[Finding, ...]
    published: tuple[tuple[Citation, Figure], ...]
    missing: tuple[tuple[str, str], ...]
    machines: tuple[str, ...]
    span: tuple[str, str]
    launches: int
    disturbed: int
    crowded: int = 0
    spoiled: tuple[str, ...] = ()
    sentences: tuple[tuple[str, str], ...] = ()

    @property
    def command(self) -> str:
        """What runs it again."""
        return f"xfbench study run {self.study.name} --size {self.size}"

    @property
    def limits(self) -> list[str]:
        """What this does not show: what the file says, how few launches there were, what is not."""
        least = min(
            (v.interval.launches for f in self.findings for v in f.values if v.interval), default=0
        )
        said = list(self.study.limits)
        if self.size != "paper":
            said.append(f"It is the size {self.size}, not what was published.")
        if 0 < least < INDICATIVE_LAUNCHES:
            said.append(f"Some figures rest on {plural(least, 'launch')} alone: a smoke test.")
        elif 0 < least < CLAIM_LAUNCHES:
            said.append(f"Some figures rest on {least} launches: indicative.")
        said += [f"A launch does not count: {reason}." for reason in self.spoiled]
        if self.crowded:
            said.append(
                f"{plural(self.crowded, 'launch')} had more threads than there are processors."
            )
        if self.disturbed:
            said.append(
                f"{self.disturbed} of {plural(self.launches, 'launch')} ran beside other work that "
                "may have changed their figures."
            )
        return said

    def document(self) -> dict[str, Any]:
        """As `study report --json` prints it."""
        return {
            "name": self.study.name,
            "title": self.study.title,
            "question": self.study.question,
            "size": self.size,
            "findings": [_plain(one) for one in self.findings],
            "published": [
                {"citation": c.model_dump(mode="json"), "figure": f.model_dump(mode="json")}
                for c, f in self.published
            ],
            "missing": [{"cell": cell, "reason": reason} for cell, reason in self.missing],
            "sentences": [{"source": key, "sentence": told} for key, told in self.sentences],
            "limits": self.limits,
            "machines": self.machines,
            "span": self.span,
            "launches": self.launches,
            "disturbed": self.disturbed,
            "command": self.command,
        }


def _plain(one: Finding) -> dict[str, Any]:
    document = asdict(one)
    for value, row in zip(one.values, document["values"], strict=True):
        row["label"] = value.interval.label if value.interval else None
    return document


def answer(
    study: Experiment, size: Size, records: Sequence[Record], certificates: Certificates
) -> Answer:
    """What the records say about it. Raises UsageError for an analysis that nobody knows."""
    check(study)
    own = cells.of_study(study, size, records)
    found = cells.measured(own)
    findings = []
    for one in study.analysis:
        made = by_name(one.name)
        chosen = [cell for cell in found if cell.matches(one.where)]
        if one.name not in ends.OF_TRIALS:
            chosen = cells.doubled(study, size, chosen)
        findings.append(made(one, chosen, certificates))
    days = sorted(record.created[:10] for record in own)
    good = [record for record in own if record.status == "ok"]
    rises = any(isinstance(one.batch_size, Rising) for one in study.of_size(size))
    return Answer(
        study=study,
        size=size,
        findings=tuple(findings),
        published=quoted(study),
        missing=(
            *_missing(
                [one for one in found if not (rises and ends.is_out(one))],
                told={one.name for one in study.analysis},
            ),
            *_absent(study, size, own),
        ),
        machines=tuple(dict.fromkeys(machine_class(record.machine) for record in good)),
        span=(days[0], days[-1]) if days else ("", ""),
        launches=len(good),
        disturbed=sum(map(_is_disturbed, good)),
        crowded=sum(map(_is_crowded, good)),
        spoiled=tuple(
            f"{cells.name(one, found)}: {record.status}: {record.reason}"
            for one in found
            if one.steady()
            for record in one.records
            if record.status != "ok" and not (rises and memory.is_out_of_memory(record))
        ),
        sentences=tuple(
            (told.citation.key, told.sentence) for told in published.findings(study.name)
        ),
    )


def _is_crowded(record: Record) -> bool:
    asked, machine = record.request, record.machine
    if asked is None or machine is None or asked.device != "cpu":
        return False
    return asked.ranks * asked.threads > asked.nodes * machine.logical_cpus


def _is_disturbed(record: Record) -> bool:
    if record.request and record.request.probe:
        return False
    return bool(conditions.record_disturbances(record))


def check(study: Experiment) -> None:
    """Raises UsageError for what an analysis names and there is not: before anything is run."""
    options = {
        option
        for matrix in study.matrix
        for name in matrix.framework
        if name in adapter.list_names()
        for way in adapter.load(name).strategies
        for option in adapter.load(name).strategy(way).options
    }
    settings = {*cells.NAMED, *options}
    for one in study.analysis:
        by_name(one.name)
        analyses.quantity(one)
        asked = [one.over] if one.over or one.name in ("best_of", "ratio") else []
        for name in (*asked, *one.where):
            if name not in settings:
                raise errors.unknown_name_error("setting", name, settings)
        for claim in one.claim:
            for name in claim.where:
                if name not in {*settings, "speedup", *support.CHOSEN_BY}:
                    raise errors.unknown_name_error("setting", name, settings)
            if (claim.best is not None) != (one.name == "best_of"):
                raise errors.UsageError(f"a claim of {one.name}: best is for best_of alone")


def by_name(name: str) -> analyses.Answer:
    """Raises UsageError."""
    if name not in ANALYSES:
        raise errors.unknown_name_error("analysis", name, ANALYSES)
    return ANALYSES[name]


def _missing(found: Sequence[cells.Measured], told: set[str]) -> list[tuple[str, str]]:
    """Cells none of whose launches is ok, but for those that diverged where an analysis says so."""
    return [
        (cells.name(one, found), f"{one.records[-1].status}: {one.records[-1].reason}")
        for one in found
        if not one.steady() and not ("diverged" in told and one.diverged())
    ]


def _absent(study: Experiment, size: Size, own: Sequence[Record]) -> list[tuple[str, str]]:
    """Data sets that it would have trained on if they had been there."""
    asked = [name for matrix in study.of_size(size) for name in matrix.data or ()]
    there = {record.request.data for record in own if record.request}
    wanted = [name for name in study.present if name in asked and name not in there]
    return [(name, media.missing(name)) for name in wanted]


def quoted(study: Experiment) -> tuple[tuple[Citation, Figure], ...]:
    """What was published about it: of its own file, and of the built-in records."""
    own = [(one.citation, one.figure) for one in study.published]
    told = [
        (record.citation, record.figure)
        for record in published.of_study(study.name)
        if record.citation and record.figure
    ]
    return (*own, *told)
