"""The answer of a study: its findings, published values, and cells without a result."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xfbench.analysis import leaderboard
from xfbench.analysis.leaderboard import Certificates
from xfbench.base import errors
from xfbench.base.wording import pluralize
from xfbench.host import conditions, memory
from xfbench.model import adapter
from xfbench.model.external_record import Citation, Figure
from xfbench.model.machines import machine_class_of_record
from xfbench.model.record import Record, is_asynchronous
from xfbench.planning.experiment import Experiment
from xfbench.planning.study_form import BatchSearch, Size
from xfbench.statistics import CLAIM_LAUNCHES, INDICATIVE_LAUNCHES
from xfbench.store import published
from xfbench.studies import (
    analyses,
    cells,
    divergence,
    learning,
    links,
    machine_comparison,
    media,
    memory_limits,
    nodes_equal,
    quantities,
    support,
)
from xfbench.studies.finding import Finding, JudgedClaim
from xfbench.studies.published_findings import judge_published_findings
from xfbench.studies.repeating import list_repeat_options

ANALYSES: dict[str, analyses.AnalysisFunction] = {
    "values": analyses.analyze_values,
    "spread": analyses.analyze_launch_spread,
    "range": analyses.analyze_launch_range,
    "best_of": analyses.analyze_best_of,
    "ratio": analyses.analyze_ratio,
    "nodes_equal": nodes_equal.analyze_nodes_equal,
    "efficiency": analyses.analyze_efficiency,
    "learning_speedup": learning.analyze_parallel_and_learning_speedups,
    "diverged": divergence.analyze_diverged_share,
    "out_of_memory": memory_limits.analyze_largest_batch,
    "memory_per_image": memory_limits.analyze_memory_per_image,
    "stops_growing": memory_limits.analyze_stops_growing,
    "support": support.analyze_support,
    "support_evidence": support.analyze_support_evidence,
    "links": links.analyze_links,
}


@dataclass(frozen=True)
class Answer:
    """The answer of a study at one size, computed from its records.

    - `findings`: the results of the study's analyses.
    - `published`: published values, each with its citation.
    - `missing`: cells and optional data sets without a result, each with the reason.
    - `machines`: the kinds of machines that the ok launches ran on.
    - `span`: the dates of the first and the last record; two empty texts if there are no records.
    - `launches`: number of ok launches.
    - `disturbed`: number of ok launches that shared the machine with other work. Their measurements
      may be wrong.
    - `oversubscribed`: number of ok launches with more threads than processors.
    - `unverified`: number of ok launches whose network may differ from that of another cell.
    - `discarded_launches`: one line for each launch that is not ok, with the reason. Cells without
      an ok launch are in `missing` instead. If the study searches for the largest batch, launches
      that were out of memory are left out.
    - `sentences`: what publications say in our own words, each with its verdict.
    - `study_argument`: the study as the user named it, by its name or the path of its file; "": the
      study's name.
    - `results`: the results folder to name in `command`; None: the default folder.
    - `conditions`: the conditions that restrict the records, such as "request.threads=2".
    - `repeat_options`: options of `command` that restrict the study to the cells of the records.
    - `unmatched`: a sentence for each other folder or archive of which no record is used.
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
    oversubscribed: int = 0
    unverified: int = 0
    discarded_launches: tuple[str, ...] = ()
    sentences: tuple[JudgedClaim, ...] = ()
    study_argument: str = ""
    results: Path | None = None
    conditions: tuple[str, ...] = ()
    repeat_options: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that runs the study's cells again."""
        study_argument = self.study_argument or self.study.name
        words = ["xfbench", "study", "run", study_argument, "--size", self.size]
        words += self.repeat_options
        words += ["--results", str(self.results)] if self.results else []
        return shlex.join(words)

    @property
    def limits(self) -> list[str]:
        """The limits of the answer, one sentence each.

        Some sentences come from the study's file. The others describe the launches.
        """
        min_launches = min(
            (v.interval.launches for f in self.findings for v in f.values if v.interval), default=0
        )
        limits = [*self.unmatched, *self.study.limits]
        if self.conditions:
            limits.append(f"Only records with {' and '.join(self.conditions)} are used.")
        if self.size != "paper" and self.study.sources:
            limits.append(f"This is the size {self.size}, not that of the publication.")
        if 0 < min_launches < INDICATIVE_LAUNCHES:
            limits.append(
                f"Some figures rest on only {pluralize(min_launches, 'launch')}: a smoke test."
            )
        elif 0 < min_launches < CLAIM_LAUNCHES:
            limits.append(f"Some figures rest on {min_launches} launches: indicative.")
        if self.unverified:
            limits.append(
                f"{self.unverified} of {pluralize(self.launches, 'launch')} were not verified: "
                "their networks may differ."
            )
        limits += [f"A launch does not count: {reason}." for reason in self.discarded_launches]
        if self.oversubscribed:
            limits.append(
                f"{pluralize(self.oversubscribed, 'launch')} had more threads than processors."
            )
        return limits + self.disturbance

    @property
    def disturbance(self) -> list[str]:
        """A sentence about launches beside other work, or none."""
        if not self.disturbed:
            return []
        return [
            f"{self.disturbed} of {pluralize(self.launches, 'launch')} shared the machine with "
            "other work, which may have changed their figures."
        ]

    def document(self) -> dict[str, Any]:
        """Return the JSON document that `study report --json` prints."""
        return {
            "name": self.study.name,
            "title": self.study.title,
            "question": self.study.question,
            "size": self.size,
            "findings": [_finding_document(finding) for finding in self.findings],
            "published": [
                {"citation": c.model_dump(mode="json"), "figure": f.model_dump(mode="json")}
                for c, f in self.published
            ],
            "missing": [{"cell": cell, "reason": reason} for cell, reason in self.missing],
            "sentences": [
                {
                    "source": judged.source,
                    "sentence": judged.text,
                    "verdict": judged.verdict,
                    "why": judged.why,
                }
                for judged in self.sentences
            ],
            "limits": self.limits,
            "machines": self.machines,
            "span": self.span,
            "launches": self.launches,
            "disturbed": self.disturbed,
            "command": self.command,
        }


def _count_unverified_launches(
    measured_cells: Sequence[cells.MeasuredCell], certificates: Certificates
) -> int:
    """Return the number of launches whose network may differ from that of another cell.

    Asynchronous launches do not count: no certificate can cover them.
    """
    by_network = defaultdict(list)
    for cell in measured_cells:
        if not cell.request.probe:
            by_network[cell.request.workload].append(cell)
    return sum(
        not is_asynchronous(record)
        and leaderboard.unranked_reason(record, certificates) is not None
        for group in by_network.values()
        if (reasons := cells.unverified_reasons_by_id(group, certificates))
        for cell in group
        if id(cell) in reasons
        for record in cell.ok_records()
    )


def _finding_document(finding: Finding) -> dict[str, Any]:
    document = asdict(finding)
    for value, row in zip(finding.values, document["values"], strict=True):
        row["label"] = value.label
    return document


def answer_study(
    study: Experiment,
    size: Size,
    records: Sequence[Record],
    certificates: Certificates,
    against: str = "",
) -> Answer:
    """Return the answer of the study at this size, computed from `records`.

    - `against`: a part of the name of the machine that is the baseline where machines are compared;
      "": the baseline in the study's file.

    Raises UsageError if the study's analyses are invalid (see `check_analyses`), or if `against` is
    not about one machine (see `choose_baseline_machine`).
    """
    check_analyses(study)
    study_records = cells.select_records(study, size, records)
    measured_cells = cells.group_cells(study_records)
    if against:
        study = machine_comparison.choose_baseline_machine(study, against, measured_cells)
    findings = []
    for analysis in study.analysis:
        analyze = analysis_function(analysis.name)
        matching_cells = [cell for cell in measured_cells if cell.matches(analysis.where)]
        if analysis.name not in memory_limits.ALL_BATCH_ANALYSES:
            matching_cells = cells.drop_search_trials(study, size, matching_cells)
        findings.append(analyze(analysis, matching_cells, certificates))
    days = sorted(record.created[:10] for record in study_records)
    ok_records = [record for record in study_records if record.status == "ok"]
    searches_batches = any(
        isinstance(matrix.batch_size, BatchSearch) for matrix in study.matrices_of_size(size)
    )
    return Answer(
        study=study,
        size=size,
        findings=tuple(findings),
        published=published_figures(study),
        missing=(
            *_cells_without_result(
                [
                    cell
                    for cell in measured_cells
                    if not (searches_batches and memory_limits.is_always_out_of_memory(cell))
                ],
                analysis_names={analysis.name for analysis in study.analysis},
            ),
            *_unused_optional_data_sets(study, size, study_records),
        ),
        machines=tuple(dict.fromkeys(machine_class_of_record(record) for record in ok_records)),
        span=(days[0], days[-1]) if days else ("", ""),
        launches=len(ok_records),
        disturbed=sum(map(_is_disturbed, ok_records)),
        oversubscribed=sum(map(_is_oversubscribed, ok_records)),
        unverified=_count_unverified_launches(measured_cells, certificates),
        discarded_launches=tuple(
            f"{cells.cell_name(cell, measured_cells)}: {record.status}: {record.reason}"
            for cell in measured_cells
            if cell.ok_records()
            for record in cell.records
            if record.status != "ok" and not (searches_batches and memory.is_out_of_memory(record))
        ),
        sentences=judge_published_findings(study, findings),
        repeat_options=list_repeat_options(study.matrices_of_size(size), study_records),
    )


def _is_oversubscribed(record: Record) -> bool:
    request, machine = record.request, record.machine
    if request is None or machine is None or request.device != "cpu":
        return False
    return request.ranks * request.threads > request.nodes * machine.logical_cpus


def _is_disturbed(record: Record) -> bool:
    if record.request and record.request.probe:
        return False
    return bool(conditions.list_record_disturbances(record))


def check_analyses(study: Experiment) -> None:
    """Check all names in the study's analyses and claims.

    Call this before any launch. Raises UsageError in these cases:

    - An analysis, a quantity or a setting is unknown, or the framework that is a baseline.
    - A claim or the list of unjudged findings names a sentence that no source has.
    - A claim does not have the fields that its analysis needs.
    - A claim names a machine as its baseline, and its analysis does not compare machines.
    """
    options = {
        option
        for matrix in study.matrix
        for name in matrix.framework
        if name in adapter.list_names()
        for strategy in adapter.load(name).strategies
        for option in adapter.load(name).find_or_build_strategy(strategy).options
    }
    settings = {*cells.SETTINGS, *options}
    _check_published_sentences(study)
    for analysis in study.analysis:
        analysis_function(analysis.name)
        quantities.find_quantity(analysis)
        needs_over = analysis.name in ("best_of", "ratio", "nodes_equal")
        setting_names = [analysis.over] if analysis.over or needs_over else []
        for name in (*setting_names, *analysis.where):
            if name not in settings:
                raise errors.unknown_name_error("setting", name, settings)
        frameworks = {name for matrix in study.matrix for name in matrix.framework}
        baselines = {*frameworks, "least", "previous", "best"}
        against = "best" if isinstance(analysis.against, Mapping) else analysis.against
        if analysis.over == "framework" and against not in baselines:
            raise errors.unknown_name_error("baseline", str(against), baselines)
        if analysis.name == "nodes_equal" and analysis.over != "machine":
            raise errors.UsageError('nodes_equal compares machines: use over = "machine"')
        for claim in analysis.claim:
            if claim.against and analysis.over != "machine":
                raise errors.UsageError(
                    f'claim of {analysis.name}: against = "{claim.against}" needs an analysis with '
                    'over = "machine"'
                )
            for name in claim.where:
                if name not in {*settings, "speedup", *support.CLAIM_FIELDS}:
                    raise errors.unknown_name_error("setting", name, settings)
            if (claim.best is not None) != (analysis.name == "best_of"):
                raise errors.UsageError(
                    f"claim of {analysis.name}: claims of best_of need 'best', "
                    "claims of other analyses need 'low' or 'high'"
                )


def _check_published_sentences(study: Experiment) -> None:
    sentences = {finding.sentence for finding in published.findings(study.name)}
    named = [claim.finding for analysis in study.analysis for claim in analysis.claim]
    named += [unjudged.finding for unjudged in study.unjudged]
    for sentence in filter(None, named):
        if sentence not in sentences:
            raise errors.UsageError(
                f'finding "{sentence}": no source says this about {study.name}: '
                "use a sentence of docs/published.md word for word, or remove it"
            )


def analysis_function(name: str) -> analyses.AnalysisFunction:
    """Return the function of the analysis `name`. Raises UsageError if the name is unknown."""
    if name not in ANALYSES:
        raise errors.unknown_name_error("analysis", name, ANALYSES)
    return ANALYSES[name]


def _cells_without_result(
    measured_cells: Sequence[cells.MeasuredCell], analysis_names: set[str]
) -> list[tuple[str, str]]:
    """Return the names of the cells without an ok launch, each with the reason.

    If `analysis_names` contains "diverged", leave out cells with a diverged launch. For that
    analysis, such a cell has a result.
    """
    return [
        (
            cells.cell_name(cell, measured_cells),
            f"{cell.records[-1].status}: {cell.records[-1].reason}",
        )
        for cell in measured_cells
        if not cell.ok_records() and not ("diverged" in analysis_names and cell.diverged_records())
    ]


def _unused_optional_data_sets(
    study: Experiment, size: Size, records: Sequence[Record]
) -> list[tuple[str, str]]:
    """Return the names of the study's optional data sets that no record used.

    Each name is paired with a message that says how to create the data set.
    """
    requested_names = [
        name.partition("@")[0]
        for matrix in study.matrices_of_size(size)
        for name in matrix.data or ()
    ]
    used_names = {record.request.data for record in records if record.request}
    missing_names = [
        name for name in study.present if name in requested_names and name not in used_names
    ]
    return [(name, media.missing_data_message(name)) for name in missing_names]


def published_figures(study: Experiment) -> tuple[tuple[Citation, Figure], ...]:
    """Return the published values that belong to the study, each with its citation.

    The values in the study's file come first, then those that are part of xfbench.
    """
    study_figures = [(quotation.citation, quotation.figure) for quotation in study.published]
    built_in_figures = [
        (record.citation, record.figure)
        for record in published.records_of_study(study.name)
        if record.citation and record.figure
    ]
    return (*study_figures, *built_in_figures)
