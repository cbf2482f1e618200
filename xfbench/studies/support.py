"""The analyses of what frameworks take from an HPC system: probes as a table, and its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xfbench.analysis.leaderboard import Certificates
from xfbench.records.features import FEATURES, GROUP_OF, Support
from xfbench.records.machines import machine_class
from xfbench.running import probing
from xfbench.studies.cells import Measured
from xfbench.studies.finding import Finding, Judged
from xfbench.studies.form import Analysis, Claim
from xfbench.studies.wording import joined, plural

CHOSEN_BY = ("feature", "group")  # what a claim may say beside settings
_TRIED = ("yes", "no")

Column = tuple[str, str]  # framework and machine
Answers = Mapping[tuple[str, Column], Support]


def support(of: Analysis, cells: Sequence[Measured], _: Certificates) -> Finding:
    """Features against frameworks: yes, no, or not here."""
    found = answers(cells)
    columns = _columns(found)
    lines = [
        (title, *(found[name, one].supported if (name, one) in found else "–" for one in columns))
        for name, title in FEATURES.items()
        if any((name, one) in found for one in columns)
    ]
    return Finding(
        title=of.title or "What is supported",
        sentence=_sentence(found),
        over="",
        unit="",
        values=(),
        judged=tuple(_judged(claim, found) for claim in of.claim),
        plot="none",
        table=(("feature", *_heads(columns)), *lines) if lines else (),
    )


def evidence(of: Analysis, cells: Sequence[Measured], _: Certificates) -> Finding:
    """What each answer rests on, in a line."""
    found = answers(cells)
    columns = _columns(found)
    lines = [
        (title, head, told.supported, told.evidence)
        for name, title in FEATURES.items()
        for one, head in zip(columns, _heads(columns), strict=True)
        if (told := found.get((name, one)))
    ]
    kinds: list[str] = [told.supported for told in found.values()]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in (*_TRIED, "not here"))
    return Finding(
        title=of.title or "Evidence",
        sentence=f"{plural(len(kinds), 'answer')}: {counts}." if kinds else "Nothing was tried.",
        over="",
        unit="",
        values=(),
        judged=(),
        plot="none",
        table=(("feature", "framework", "supported", "seen"), *lines) if lines else (),
    )


def answers(cells: Sequence[Measured]) -> Answers:
    """The last answer to each feature in each framework; one that was tried goes before others.

    A framework is told apart by the kind of machine; what was refused before there was one, such
    as a job that nobody took, is said of each.
    """
    found: dict[tuple[str, Column], Support] = {}
    known = [(record, one) for one in cells for record in one.records]
    for record, one in sorted(known, key=lambda pair: (pair[0].created, pair[0].id)):
        column = (one.request.framework, str(one.value("machine")))
        for told in probing.support_of_record(record):
            before = found.get((told.feature, column))
            if told.supported in _TRIED or not before or before.supported not in _TRIED:
                found[told.feature, column] = told
    return _everywhere(found)


def _everywhere(found: Mapping[tuple[str, Column], Support]) -> Answers:
    """Answers of no machine, given to those that their framework was tried on."""
    nowhere = machine_class(None)
    made = dict(found)
    for (name, (framework, machine)), told in found.items():
        others = {one for _, one in found if one[0] == framework and one[1] != nowhere}
        if machine == nowhere and others:
            del made[name, (framework, machine)]
            for one in others:
                made.setdefault((name, one), told)
    return made


def _columns(found: Answers) -> list[Column]:
    return sorted({column for _, column in found})


def _heads(columns: Sequence[Column]) -> list[str]:
    several = len({machine for _, machine in columns}) > 1
    return [f"{name} · {machine}" if several else name for name, machine in columns]


def _sentence(found: Answers) -> str:
    if not found:
        return "Nothing was tried."
    columns = _columns(found)
    told = []
    for one, head in zip(columns, _heads(columns), strict=True):
        own = [answer.supported for (_, column), answer in found.items() if column == one]
        tried = sum(answer in _TRIED for answer in own)
        told.append(f"{head} takes {own.count('yes')} of {tried}")
    never = [FEATURES.get(name, name) for name in _untried(found, {name for name, _ in found})]
    sentence = f"Of the features that can be tried here {joined(told)}."
    if never:
        sentence += f" Not here: {'; '.join(never)}."
    return sentence


def _untried(found: Answers, names: set[str]) -> list[str]:
    """The features that were tried in no framework, in the order of the table."""
    tried = {name for (name, _), told in found.items() if told.supported in _TRIED}
    return [name for name in FEATURES if name in names - tried]


def _judged(claim: Claim, found: Answers) -> Judged:
    """Whether the share of answers that are yes lies where the claim says.

    It cannot be told unless each of its features could be tried.
    """
    about = {
        (name, column): told
        for (name, column), told in found.items()
        if _matches(claim, name, column[0])
    }
    missing = _untried(found, {name for name, _ in about})
    kinds = [told.supported for told in about.values() if told.supported in _TRIED]
    if missing or not kinds:
        what = "; ".join(FEATURES[name] for name in missing) or "nothing of it"
        why = f"not here to be tried: {what}" if missing else f"{what} was tried here"
        return Judged(claim.source, claim.text, "cannot be told", why)
    share = kinds.count("yes") / len(kinds)
    low, high = claim.bounds
    why = f"{kinds.count('yes')} of {plural(len(kinds), 'answer')} yes"
    return Judged(
        claim.source, claim.text, "holds" if low <= share <= high else "does not hold", why
    )


def _matches(claim: Claim, feature: str, framework: str) -> bool:
    fields = {"feature": feature, "group": GROUP_OF.get(feature), "framework": framework}
    return all(fields.get(name) == value for name, value in claim.where.items())
