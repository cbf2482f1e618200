"""Finds the certificate of a cell, or makes it: what `verify` and `run` do before measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from xfbench import adapter, capabilities
from xfbench.base import atomic_files, paths
from xfbench.environments.environment import Environment
from xfbench.equality import certificate
from xfbench.equality.certificate import (
    SAFETY,
    Certificate,
    CertificateError,
    Subject,
    certified_fields,
)
from xfbench.equality.jobs import CheckError
from xfbench.equality.verify import Verdict, Verifier, unprovable
from xfbench.host import machine
from xfbench.records import facts
from xfbench.records.record import Machine
from xfbench.request import Request
from xfbench.running import training
from xfbench.running.launch import LaunchContext

_SEED = 0


def subject(request: Request, found: Environment, where: Machine | None = None) -> Subject:
    """What a certificate for this request would be bound to now, here or on another machine."""
    return Subject.of(
        request,
        facts.workload_facts(training.workload(request)).digest,
        adapter.load(request.framework).digest,
        found.digest,
        where or machine.describe(),
    )


def find(of: Subject) -> Certificate | None:
    """The certificate in the cache, if there is one for exactly this."""
    try:
        found = certificate.read(_path(of))
    except CertificateError:
        return None
    return found if found.subject == of else None


def alone(request: Request) -> Request:
    """The same on one rank, which has to be right before several can be."""
    of_one = {"ranks": 1, "nodes": 1, "strategy": "none", "strategy_options": ()}
    return request.model_copy(update={**of_one, "global_batch_size": request.batch_size_per_rank})


def prove(
    verifier: Verifier,
    request: Request,
    found: Environment,
    seed: int,
    where: Machine | None = None,
) -> Verdict:
    """The verdict on a cell. Several ranks can only be right where a single one is.

    Its certificate is looked for, and made where it is missing. Raises CheckError.
    """
    if request.ranks > 1 and not (capabilities.refusal(request) or unprovable(request)):
        one = alone(request)
        have = find(subject(one, found, where))
        have = have or make(verifier.verify(one, found, seed), found, seed, where)
        if have is None or have.verdict != "equal":
            reason = f"on one rank: {have.finding}" if have else "one rank cannot be verified"
            return Verdict(request, "different" if have else "unsupported", reason)
    return verifier.verify(request, found, seed)


def make(
    verdict: Verdict, found: Environment, seed: int, where: Machine | None = None
) -> Certificate | None:
    """Keep the verdict as a certificate in the cache; None for what is unsupported."""
    if verdict.verdict == "unsupported":
        return None
    of = subject(verdict.request, found, where)
    made = Certificate.make(
        subject=of,
        verdict=verdict.verdict,
        finding=finding(verdict),
        safety_factor=SAFETY,
        seed=seed,
        checks=verdict.checks,
        framework_version=found.version,
    )
    made.write(_path(of))
    return made


def finding(verdict: Verdict) -> str | None:
    """What a verdict of "different" is about, in a line."""
    if verdict.verdict != "different":
        return None
    place = f"first at {verdict.place.layer}" if verdict.place else "at no single layer"
    worst = verdict.worst
    if verdict.reason or worst is None:
        return f"{place}: {verdict.reason}"
    what = " ".join(filter(None, [worst.kind, worst.name]))
    return f"{place}; {what} is off by {worst.relative_error:.1e}, allowed {worst.tolerance:.1e}"


def certify(
    requests: Iterable[Request],
    session: LaunchContext,
    working: Callable[[str], None],
    say: Callable[[str], None],
) -> None:
    """Give the session a certificate for each kind of cell, and copy it to the results folder.

    `working` hears what is being done. A cell that differs, or cannot be verified, gets
    none, and `say` hears why.
    """
    verifier = Verifier(working)
    session.store.prepare()
    for request in {certified_fields(request): request for request in requests}.values():
        found = session.environments.get(request.framework)
        if found is None:
            continue
        if reason := unprovable(request):
            say(f"{request.label()}: not ranked, {reason}")
            continue
        of = subject(request, found)
        have = find(of)
        if have is None:
            try:
                have = make(prove(verifier, request, found, _SEED), found, _SEED)
            except CheckError as error:
                say(f"not verified: {error}")
        if have is None:
            continue
        if have.verdict != "equal":
            say(f"{request.label()}: different, {have.finding}")
            continue
        _give(of, request, session)


def attach(request: Request, session: LaunchContext) -> None:
    """Give the session the cell's certificate if the cache has one; nothing is verified."""
    found = session.environments.get(request.framework)
    if found is None:
        return
    of = subject(request, found)
    have = find(of)
    if have and have.verdict == "equal":
        session.store.prepare()
        _give(of, request, session)


def _give(of: Subject, request: Request, session: LaunchContext) -> None:
    """Copy the cached certificate byte for byte.

    One that another version made is not what this version would write, and its id is that of
    what was written.
    """
    content = _path(of).read_bytes()
    identity = Certificate.read(content).id
    atomic_files.write(session.store.certificate_path(identity), content)
    session.certificates[certified_fields(request)] = identity


def _path(of: Subject) -> Path:
    return paths.cache() / "certificates" / f"{of.key}.json"
