"""The analyses of support for HPC features.

An answer says whether a framework supports a feature on a machine: "yes", "no" or "not here". The
evidence of an answer is what a probe observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xfbench.analysis.leaderboard import Certificates
from xfbench.base.wording import pluralize
from xfbench.execution import probing
from xfbench.model.features import FEATURES, GROUP_OF, Support
from xfbench.model.machines import machine_class, machine_class_of_record
from xfbench.model.sealed import age_key
from xfbench.planning.study_form import Analysis, Claim
from xfbench.studies.cells import MeasuredCell
from xfbench.studies.finding import Finding, JudgedClaim
from xfbench.studies.wording import join_words

CLAIM_FIELDS = ("feature", "group")  # allowed in a claim's `where`, like settings
_TRIED_ANSWERS = ("yes", "no")

FrameworkOnMachine = tuple[str, str]  # framework and machine
Answers = Mapping[tuple[str, FrameworkOnMachine], Support]


def analyze_support(analysis: Analysis, cells: Sequence[MeasuredCell], _: Certificates) -> Finding:
    """Return a finding with a table of answers: one row per feature, one column per framework.

    An answer is "yes", "no" or "not here". If the records come from several kinds of machines, the
    table has one column for each framework on each kind of machine.
    """
    answers = collect_probe_answers(cells)
    columns = _sorted_columns(answers)
    lines = [
        (
            title,
            *(
                answers[name, column].supported if (name, column) in answers else "–"
                for column in columns
            ),
        )
        for name, title in FEATURES.items()
        if any((name, column) in answers for column in columns)
    ]
    return Finding(
        title=analysis.title or "Supported features",
        sentence=_summarize_support(answers),
        over="",
        unit="",
        values=(),
        judged=tuple(_judge_claim(claim, answers) for claim in analysis.claim),
        plot="none",
        table=(("feature", *_column_titles(columns)), *lines) if lines else (),
    )


def analyze_support_evidence(
    analysis: Analysis, cells: Sequence[MeasuredCell], _: Certificates
) -> Finding:
    """Return a finding with a table of answers, one per row, with the evidence of each answer."""
    answers = collect_probe_answers(cells)
    columns = _sorted_columns(answers)
    lines = [
        (title, head, answer.supported, answer.evidence)
        for name, title in FEATURES.items()
        for column, head in zip(columns, _column_titles(columns), strict=True)
        if (answer := answers.get((name, column)))
    ]
    kinds: list[str] = [answer.supported for answer in answers.values()]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in (*_TRIED_ANSWERS, "not here"))
    return Finding(
        title=analysis.title or "Evidence",
        sentence=f"{pluralize(len(kinds), 'answer')}: {counts}."
        if kinds
        else "No feature was tested.",
        over="",
        unit="",
        values=(),
        judged=(),
        plot="none",
        table=(("feature", "framework", "supported", "seen"), *lines) if lines else (),
    )


def collect_probe_answers(cells: Sequence[MeasuredCell]) -> Answers:
    """Return one answer for each feature and for each framework on a kind of machine.

    If there are several answers, the latest "yes" or "no" counts. If all are "not here", the latest
    of them counts.

    Some records name no machine, for example the record of a rejected job. The answers of such a
    record apply to all machines on which the framework has records.
    """
    answers: dict[tuple[str, FrameworkOnMachine], Support] = {}
    pairs = [(record, cell) for cell in cells for record in cell.records]
    for record, cell in sorted(pairs, key=lambda pair: age_key(pair[0])):
        column = (cell.request.framework, machine_class_of_record(cell.records[-1]))
        for answer in probing.support_of_record(record):
            earlier = answers.get((answer.feature, column))
            if (
                answer.supported in _TRIED_ANSWERS
                or not earlier
                or earlier.supported not in _TRIED_ANSWERS
            ):
                answers[answer.feature, column] = answer
    return _move_machineless_answers_to_machines(answers)


def _move_machineless_answers_to_machines(
    answers: Mapping[tuple[str, FrameworkOnMachine], Support],
) -> Answers:
    """Move each answer that names no machine to all machines of its framework.

    An answer that a machine already has is not replaced. If all answers of a framework name no
    machine, they do not change.
    """
    no_machine = machine_class(None)
    assigned = dict(answers)
    for (name, (framework, machine)), answer in answers.items():
        columns = {
            column for _, column in answers if column[0] == framework and column[1] != no_machine
        }
        if machine == no_machine and columns:
            del assigned[name, (framework, machine)]
            for column in columns:
                assigned.setdefault((name, column), answer)
    return assigned


def _sorted_columns(answers: Answers) -> list[FrameworkOnMachine]:
    return sorted({column for _, column in answers})


def _column_titles(columns: Sequence[FrameworkOnMachine]) -> list[str]:
    several = len({machine for _, machine in columns}) > 1
    return [f"{name} · {machine}" if several else name for name, machine in columns]


def _summarize_support(answers: Answers) -> str:
    if not answers:
        return "No feature was tested."
    columns = _sorted_columns(answers)
    phrases = []
    for shown_column, head in zip(columns, _column_titles(columns), strict=True):
        column_answers = [
            answer.supported for (_, column), answer in answers.items() if column == shown_column
        ]
        tried = sum(answer in _TRIED_ANSWERS for answer in column_answers)
        phrases.append(f"{head} supports {column_answers.count('yes')} of {tried}")
    untried = [
        FEATURES.get(name, name)
        for name in _untested_features(answers, {name for name, _ in answers})
    ]
    sentence = f"Of the features that can be tested here, {join_words(phrases)}."
    if untried:
        sentence += f" Not testable here: {'; '.join(untried)}."
    return sentence


def _untested_features(answers: Answers, feature_names: set[str]) -> list[str]:
    """Return the features in `feature_names` without a "yes" or "no", in the order of FEATURES."""
    tried = {name for (name, _), answer in answers.items() if answer.supported in _TRIED_ANSWERS}
    return [name for name in FEATURES if name in feature_names - tried]


def _judge_claim(claim: Claim, answers: Answers) -> JudgedClaim:
    """Judge whether the share of "yes" answers lies within the claim's bounds.

    The share is the number of "yes", divided by the number of "yes" and "no". Only answers for the
    features and frameworks in `claim.where` count. The verdict is "cannot be told" if there are no
    such answers, or if one of the features was not tested.
    """
    matching = {
        (name, column): answer
        for (name, column), answer in answers.items()
        if _is_about(claim, name, column[0])
    }
    missing = _untested_features(answers, {name for name, _ in matching})
    kinds = [answer.supported for answer in matching.values() if answer.supported in _TRIED_ANSWERS]
    if missing or not kinds:
        subject = "; ".join(FEATURES[name] for name in missing) or "no matching feature"
        reason = f"not testable here: {subject}" if missing else f"{subject} was tested here"
        return JudgedClaim(claim.source, claim.text, "cannot be told", reason)
    share = kinds.count("yes") / len(kinds)
    low, high = claim.bounds
    reason = f"{kinds.count('yes')} of {pluralize(len(kinds), 'answer')} yes"
    return JudgedClaim(
        claim.source, claim.text, "holds" if low <= share <= high else "does not hold", reason
    )


def _is_about(claim: Claim, feature: str, framework: str) -> bool:
    fields = {"feature": feature, "group": GROUP_OF.get(feature), "framework": framework}
    return all(fields.get(name) == value for name, value in claim.where.items())
