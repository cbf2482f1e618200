"""The analyses of what frameworks take from an HPC system: probes as a table, and its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xfbench.analysis.leaderboard import Certificates
from xfbench.execution import probing
from xfbench.model.features import FEATURES, GROUP_OF, Support
from xfbench.model.machines import machine_class
from xfbench.planning.study_form import Analysis, Claim
from xfbench.studies.cells import MeasuredCell
from xfbench.studies.finding import Finding, JudgedClaim
from xfbench.studies.wording import join_words, pluralize

CLAIM_FIELDS = ("feature", "group")  # what a claim may say beside settings
_TRIED_ANSWERS = ("yes", "no")

Column = tuple[str, str]  # framework and machine
Answers = Mapping[tuple[str, Column], Support]


def analyze_support(analysis: Analysis, cells: Sequence[MeasuredCell], _: Certificates) -> Finding:
    """Features against frameworks: yes, no, or not here."""
    answers = collect_answers(cells)
    columns = _columns(answers)
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
        title=analysis.title or "What is supported",
        sentence=_sentence(answers),
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
    """What each answer rests on, in a line."""
    answers = collect_answers(cells)
    columns = _columns(answers)
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
        sentence=f"{pluralize(len(kinds), 'answer')}: {counts}." if kinds else "Nothing was tried.",
        over="",
        unit="",
        values=(),
        judged=(),
        plot="none",
        table=(("feature", "framework", "supported", "seen"), *lines) if lines else (),
    )


def collect_answers(cells: Sequence[MeasuredCell]) -> Answers:
    """The last answer to each feature in each framework; one that was tried goes before others.

    A framework is told apart by the kind of machine; what was refused before there was one, such
    as a job that nobody took, is said of each.
    """
    answers: dict[tuple[str, Column], Support] = {}
    pairs = [(record, cell) for cell in cells for record in cell.records]
    for record, cell in sorted(pairs, key=lambda pair: (pair[0].created, pair[0].id)):
        column = (cell.request.framework, str(cell.setting("machine")))
        for answer in probing.support_of_record(record):
            earlier = answers.get((answer.feature, column))
            if (
                answer.supported in _TRIED_ANSWERS
                or not earlier
                or earlier.supported not in _TRIED_ANSWERS
            ):
                answers[answer.feature, column] = answer
    return _assign_to_machines(answers)


def _assign_to_machines(answers: Mapping[tuple[str, Column], Support]) -> Answers:
    """Answers of no machine, given to those that their framework was tried on."""
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


def _columns(answers: Answers) -> list[Column]:
    return sorted({column for _, column in answers})


def _column_titles(columns: Sequence[Column]) -> list[str]:
    several = len({machine for _, machine in columns}) > 1
    return [f"{name} · {machine}" if several else name for name, machine in columns]


def _sentence(answers: Answers) -> str:
    if not answers:
        return "Nothing was tried."
    columns = _columns(answers)
    phrases = []
    for shown_column, head in zip(columns, _column_titles(columns), strict=True):
        column_answers = [
            answer.supported for (_, column), answer in answers.items() if column == shown_column
        ]
        tried = sum(answer in _TRIED_ANSWERS for answer in column_answers)
        phrases.append(f"{head} takes {column_answers.count('yes')} of {tried}")
    untried = [
        FEATURES.get(name, name) for name in _untried(answers, {name for name, _ in answers})
    ]
    sentence = f"Of the features that can be tried here {join_words(phrases)}."
    if untried:
        sentence += f" Not here: {'; '.join(untried)}."
    return sentence


def _untried(answers: Answers, names: set[str]) -> list[str]:
    """The features that were tried in no framework, in the order of the table."""
    tried = {name for (name, _), answer in answers.items() if answer.supported in _TRIED_ANSWERS}
    return [name for name in FEATURES if name in names - tried]


def _judge_claim(claim: Claim, answers: Answers) -> JudgedClaim:
    """Whether the share of answers that are yes lies where the claim says.

    It cannot be told unless each of its features could be tried.
    """
    matching = {
        (name, column): answer
        for (name, column), answer in answers.items()
        if _is_about(claim, name, column[0])
    }
    missing = _untried(answers, {name for name, _ in matching})
    kinds = [answer.supported for answer in matching.values() if answer.supported in _TRIED_ANSWERS]
    if missing or not kinds:
        subject = "; ".join(FEATURES[name] for name in missing) or "nothing of it"
        reason = f"not here to be tried: {subject}" if missing else f"{subject} was tried here"
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
