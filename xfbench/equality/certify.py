"""Find or create the certificate of a cell, for `xfbench verify` and `xfbench run`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xfbench.base import atomic_files, paths
from xfbench.base.wording import pluralize
from xfbench.environments import worker_archive
from xfbench.environments.environment import Environment
from xfbench.equality import timed_batch
from xfbench.equality.jobs import CheckError
from xfbench.equality.verify import Verdict, Verifier, unverifiable_reason
from xfbench.execution import job
from xfbench.execution.launch import LaunchContext
from xfbench.host import machine
from xfbench.model import adapter, capabilities, certificate, facts, training
from xfbench.model.certificate import (
    BATCH_SCHEMA,
    SAFETY,
    SCHEMA,
    Certificate,
    CertificateError,
    CertifiedFields,
    Subject,
    TimedBatch,
    batch_certified_fields,
    certified_fields,
    single_rank_subject,
)
from xfbench.model.record import Machine, Record
from xfbench.model.request import Request
from xfbench.store.results_folder import Store

_SEED = 0


def build_subject(
    request: Request, environment: Environment, machine_facts: Machine | None = None
) -> Subject:
    """Return what a certificate for this request is valid for.

    `machine_facts` describes the machine (None: this machine).
    """
    return Subject.from_request(
        request,
        facts.workload_facts(training.workload_with_solver_of_cell(request)).digest,
        adapter.load(request.framework, request.revision).digest,
        worker_archive.worker_digest(request.framework, request.revision),
        environment.digest,
        machine_facts or machine.describe_machine(),
        # Only this machine's GPUs can be asked which of them the first rank uses.
        machine.list_first_rank_gpu_names() if machine_facts is None else (),
    )


def find_cached_certificate(
    subject: Subject, batch: TimedBatch | None = None, cache: Path | None = None
) -> Certificate | None:
    """Return the cached certificate for exactly this subject. None if there is none.

    With `batch`, return the certificate for this timed batch.

    - `cache`: the folder to use instead of the user's certificates. All functions here with this
      parameter read and write this folder only. It is for verdicts on results of other machines,
      which later launches on this machine must not inherit.
    """
    for key in (subject.key, *subject.earlier_keys):
        try:
            cached = certificate.read(certificate_cache_path(key, batch, cache))
        except CertificateError:
            continue
        if cached.subject.covers(subject) and cached.timed_batch == batch:
            return cached
    return None


def single_rank_request(request: Request) -> Request:
    """Return the request with one rank and the same batch size per rank.

    This request is verified before a request with several ranks.
    """
    single_rank = {"ranks": 1, "nodes": 1, "strategy": "none", "strategy_options": ()}
    return request.model_copy(
        update={**single_rank, "global_batch_size": request.batch_size_per_rank}
    )


def verify_after_single_rank(
    verifier: Verifier,
    request: Request,
    environment: Environment,
    seed: int,
    machine_facts: Machine | None = None,
    cache: Path | None = None,
) -> Verdict:
    """Return the verdict on a cell. If the cell has several ranks, verify one rank first.

    - If the single-rank cell has a cached certificate, the certificate replaces its verification.
      If not, the single-rank cell is verified, and its certificate is stored.
    - If the single-rank cell is "different", the cell with several ranks is "different" too. It is
      not verified itself.
    - If the single-rank cell cannot be verified, the cell with several ranks is "unsupported".

    `machine_facts` describes the machine (None: this machine). Raises CheckError if the framework
    returns no results.
    """
    if request.ranks > 1 and not (
        capabilities.refusal_reason(request) or unverifiable_reason(request)
    ):
        single_rank = single_rank_request(request)
        single_rank_certificate = find_cached_certificate(
            build_subject(single_rank, environment, machine_facts), cache=cache
        )
        single_rank_certificate = single_rank_certificate or store_verdict_unless_unsupported(
            verifier.verify(single_rank, environment, seed), environment, seed, machine_facts, cache
        )
        if single_rank_certificate is None or single_rank_certificate.verdict != "equal":
            reason = (
                f"on one rank: {single_rank_certificate.finding}"
                if single_rank_certificate
                else "one rank cannot be verified"
            )
            return Verdict(
                request, "different" if single_rank_certificate else "unsupported", reason
            )
    return verifier.verify(request, environment, seed)


def store_verdict_unless_unsupported(
    verdict: Verdict,
    environment: Environment,
    seed: int,
    machine_facts: Machine | None = None,
    cache: Path | None = None,
) -> Certificate | None:
    """Store the verdict as a certificate in the cache and return the certificate.

    If the verdict is "unsupported", store nothing and return None.

    - `seed`: the seed of the verified cases
    - `machine_facts`: a description of the machine; None: this machine
    """
    if verdict.verdict == "unsupported":
        return None
    subject = build_subject(verdict.request, environment, machine_facts)
    return _make_and_cache(verdict, subject, None, environment, seed, cache)


def _make_and_cache(
    verdict: Verdict,
    subject: Subject,
    batch: TimedBatch | None,
    environment: Environment,
    seed: int,
    cache: Path | None,
) -> Certificate:
    finding = describe_difference(verdict)
    if batch and finding:
        finding = f"at a batch of {batch.batch_size}: {finding}"
    new_certificate = Certificate.make(
        schema_=BATCH_SCHEMA if batch else SCHEMA,
        subject=subject,
        verdict=verdict.verdict,
        finding=finding,
        safety_factor=SAFETY,
        seed=seed,
        checks=verdict.checks,
        framework_version=environment.version,
        timed_batch=batch,
        kernel_evidence=verdict.kernel_evidence,
    )
    new_certificate.write(certificate_cache_path(subject.key, batch, cache))
    return new_certificate


def describe_difference(verdict: Verdict) -> str | None:
    """Return a line that says where and by how much a cell differs.

    The result is None unless the verdict is "different".
    """
    if verdict.verdict != "different":
        return None
    place = f"first at {verdict.place.layer}" if verdict.place else "at no single layer"
    worst = verdict.worst
    if verdict.reason or worst is None:
        return f"{place}: {verdict.reason}"
    quantity = " ".join(filter(None, [worst.kind, worst.name]))
    return (
        f"{place}; {quantity} is off by {worst.relative_error:.1e}, allowed {worst.tolerance:.1e}"
    )


def certify_requests(
    requests: Iterable[Request],
    session: LaunchContext,
    say_progress: Callable[[str], None],
    say: Callable[[str], None],
    *,
    with_timed_batches: bool = True,
) -> int:
    """Find or create the certificates of the requested cells.

    Return how many certificates of "equal" come from an earlier verification.

    Cells that need the same certificate are verified once. The certificates are copied to the
    results folder. One of "different" speaks against earlier launches that name none.

    If `with_timed_batches` is true, each cell that is equal also gets a certificate for the batch
    that it trains on.

    - `session`: gets the ids of the certificates
    - `say_progress`: is called with each progress message
    - `say`: is called with a message for each cell that differs or whose verification fails
    """
    verifier = Verifier(say_progress)
    session.store.create_and_check_folders()
    reused = 0
    for request in choose_verified(requests):
        environment = session.environments.get(request.environment_key)
        if environment is None:
            continue
        if reason := unverifiable_reason(request):
            say(f"{request.label()}: not ranked, {reason}")
            continue
        subject = build_subject(request, environment)
        cell_certificate = find_cached_certificate(subject)
        is_cached = cell_certificate is not None
        if cell_certificate is None:
            try:
                cell_certificate = store_verdict_unless_unsupported(
                    verify_after_single_rank(verifier, request, environment, _SEED),
                    environment,
                    _SEED,
                )
            except CheckError as error:
                say(f"not verified: {error}")
        if cell_certificate is None:
            continue
        if cell_certificate.verdict != "equal":
            _say_difference(request, cell_certificate, say)
            copy_cached_certificate(cell_certificate, session.store)
            continue
        reused += is_cached
        _copy_certificate_to_session(cell_certificate, request, session)
    if with_timed_batches:
        equal = [each for each in requests if certified_fields(each) in session.certificates]
        for group in group_by_process(equal):
            environment = session.environments[group[0].environment_key]
            for request, batch_certificate in certify_timed_batches(
                verifier, group, environment, say, unproven=session.unproven_batches
            ):
                _copy_batch_certificate_to_session(batch_certificate, request, session)
    return reused


@dataclass(frozen=True)
class Unproven:
    """What must be verified before launches.

    - `configurations`: number of configurations without a certificate.
    - `batches`: number of timed batches without a certificate.
    """

    configurations: int
    batches: int

    def describe(self) -> str:
        """Return what is verified first, and how long that may take; "" if nothing is."""
        counts = [
            pluralize(count, noun)
            for count, noun in (
                (self.configurations, "configuration"),
                (self.batches, "timed batch size"),
            )
            if count
        ]
        if not counts:
            return ""
        verb = "is" if self.configurations + self.batches == 1 else "are"
        text = f"{' and '.join(counts)} {verb} not proven equal yet: verification comes first"
        if not self.configurations:
            return f"{text}, and may take minutes"
        # Measured on one core: docs/measured/equality.md.
        durations = "5 s (LeNet), 2 min (AlexNet) and up to 50 min (ResNet-101 with XLA)"
        return f"{text}. A configuration took {durations}"


def count_unproven(
    requests: Sequence[Request], environments: Mapping[str, Environment | None]
) -> Unproven:
    """Count the certificates that `certify_requests` would make. Nothing is verified or created.

    - `requests`: requests that can be launched and verified.
    - `environments`: the environment by `Cell.environment_key`; None: not created yet.
    """

    def find(request: Request, batch: TimedBatch | None = None) -> Certificate | None:
        environment = environments[request.environment_key]
        if environment is None:
            return None
        subject = build_subject(request, environment)
        return find_cached_certificate(single_rank_subject(subject) if batch else subject, batch)

    found = {certified_fields(each): find(each) for each in choose_verified(requests)}
    different = {key for key, each in found.items() if each and each.verdict != "equal"}
    groups = group_by_process(each for each in requests if certified_fields(each) not in different)
    batches = {
        (number, TimedBatch.from_request(request)): request
        for number, group in enumerate(groups)
        for request in group
    }
    return Unproven(
        sum(each is None for each in found.values()),
        sum(find(request, batch) is None for (_, batch), request in batches.items()),
    )


def find_unverified_by_request(records: Iterable[Record], store: Store) -> dict[Request, Record]:
    """Return launches without a certificate, or without that of their timed batch, by request.

    Of each cell, it is the last. A batch that could not be verified needs no certificate: a run
    tries it once.

    - `records`: the launches, oldest first
    """
    launches = [record for record in records if record.status == "ok"]
    certificates = certificate.read_certificates(store.folder) if launches else {}
    by_cell = {
        record.request.cell(): (record.request, record)
        for record in launches
        if record.request and not record.request.probe and _is_unverified(record, certificates)
    }
    return dict(by_cell.values())


def _is_unverified(record: Record, certificates: Mapping[str, Certificate | str]) -> bool:
    certificate_id = certificate.find_certificate_id(record, certificates)
    if certificate_id is None:
        return True
    stored = certificates.get(certificate_id)
    return (
        isinstance(stored, Certificate)
        and stored.verdict == "equal"
        and certificate.find_batch_certificate_id(record, certificates) is None
        and record.batch_unproven_reason is None
        and record.request is not None
        and timed_batch.unverifiable_batch_reason(record.request) is None
    )


def may_cover(request: Request, environment: Environment, record: Record) -> bool:
    """Return whether a certificate for this request on this machine would cover the record."""
    subject = certificate.subject_of_record(record)
    accelerators = record.machine.accelerators if record.machine else ()
    return subject is not None and build_subject(request, environment).covers(subject, accelerators)


def group_by_process(requests: Iterable[Request]) -> list[list[Request]]:
    """Return groups of requests whose timed batches are verified in the same process.

    The requests of a group have different batches. They have the same interpreter, network, kernel,
    precision and threads. Ranks and strategy may differ, because one rank is verified.
    """
    groups: dict[CertifiedFields, dict[CertifiedFields, Request]] = {}
    # An unpinned request fits any node, so it represents those that are pinned.
    for request in sorted(requests, key=lambda each: each.affinity != "none"):
        single_rank = request.model_copy(
            update={"ranks": 1, "strategy": "none", "strategy_options": ()}
        )
        fields = (*certified_fields(single_rank), request.threads)
        groups.setdefault(fields, {}).setdefault(batch_certified_fields(request), request)
    return [[*group.values()] for group in groups.values()]


def certify_timed_batches(
    verifier: Verifier,
    group: Sequence[Request],
    environment: Environment,
    say: Callable[[str], None],
    machine_facts: Machine | None = None,
    *,
    again: bool = False,
    unproven: dict[CertifiedFields, str] | None = None,
    cache: Path | None = None,
) -> Iterator[tuple[Request, Certificate]]:
    """Find or create the batch certificates of a group, and yield each request with its own.

    `group` is one of `group_by_process`. Requests whose batch cannot be verified are left out, and
    `say` is called with the reason.

    - `machine_facts`: a description of the machine; None: this machine
    - `again`: whether to create certificates that exist
    - `unproven`: gets the reason for each batch that cannot be verified. The keys are
      `batch_certified_fields`.
    """
    subject = single_rank_subject(build_subject(group[0], environment, machine_facts))
    requests_by_batch = defaultdict(list)
    for request in group:
        requests_by_batch[TimedBatch.from_request(request)].append(request)
    certificates = {
        batch: None if again else find_cached_certificate(subject, batch, cache)
        for batch in requests_by_batch
    }
    missing = [batch for batch, cached in certificates.items() if cached is None]
    single_rank = single_rank_request(group[0]).model_copy(update={"allocator": None})
    for batch, verdict in _verify_timed_batches(verifier, single_rank, environment, missing):
        if verdict.verdict == "unsupported":
            # Records keep the reason, and other people may read them.
            words = (verdict.reason or "no reason given").split()
            reason = job.redact_hosts(" ".join(words), single_rank.site)
            not_verified = f"not verified at a batch of {batch.batch_size}"
            say(f"{single_rank.label()}: {not_verified}: {reason}")
            if unproven is not None:
                keys = map(batch_certified_fields, requests_by_batch[batch])
                unproven |= dict.fromkeys(keys, reason)
        else:
            certificates[batch] = _make_and_cache(
                verdict, subject, batch, environment, _SEED, cache
            )
    for batch, batch_certificate in certificates.items():
        if batch_certificate:
            _say_difference(requests_by_batch[batch][0], batch_certificate, say)
            for request in requests_by_batch[batch]:
                yield request, batch_certificate


def _say_difference(request: Request, verdict: Certificate, say: Callable[[str], None]) -> None:
    if verdict.verdict != "equal":
        say(f"{request.label()}: different, {verdict.finding}")


def _verify_timed_batches(
    verifier: Verifier,
    request: Request,
    environment: Environment,
    batches: Sequence[TimedBatch],
) -> Iterator[tuple[TimedBatch, Verdict]]:
    """Yield the verdict on each batch. If a process fails, try each batch alone.

    A batch whose process fails is "unsupported".
    """
    if not batches:
        return
    sizes = [batch.batch_size for batch in batches]
    try:
        verdicts = timed_batch.verify_batch_sizes(verifier, request, environment, sizes, _SEED)
    except CheckError as error:
        if len(batches) == 1:
            reason = str(error).removeprefix(f"{request.label()}: ")
            yield batches[0], Verdict(request, "unsupported", reason)
            return
        for batch in batches:
            yield from _verify_timed_batches(verifier, request, environment, [batch])
        return
    for batch in batches:
        yield batch, verdicts[batch.batch_size]


def choose_verified(requests: Iterable[Request]) -> list[Request]:
    """Return one request for each certificate that is needed.

    If pinning is all that differs, an unpinned request is preferred: it fits any node, so that a
    pinning that does not fit costs only its own cell.
    """
    chosen: dict[CertifiedFields, Request] = {}
    for request in requests:
        key = certified_fields(request)
        if key not in chosen or request.affinity == "none":
            chosen[key] = request
    return [*chosen.values()]


def attach_cached_certificate(request: Request, session: LaunchContext) -> None:
    """If the cache has a certificate of "equal" for the cell, add it to the session.

    The same holds for the certificate of its timed batch, whatever that says. The certificates are
    also copied to the results folder. Nothing is verified.
    """
    environment = session.environments.get(request.environment_key)
    if environment is None:
        return
    subject = build_subject(request, environment)
    cached = find_cached_certificate(subject)
    session.store.create_and_check_folders()
    if cached and cached.verdict == "equal":
        _copy_certificate_to_session(cached, request, session)
    batch = TimedBatch.from_request(request)
    if of_batch := find_cached_certificate(single_rank_subject(subject), batch):
        _copy_batch_certificate_to_session(of_batch, request, session)


def copy_cached_certificate(cached: Certificate, store: Store) -> None:
    """Copy a certificate from the cache to the results folder.

    The bytes are copied, because the id is their digest. If another version of xfbench wrote the
    certificate, this version might write the same content with other bytes.
    """
    content = certificate_cache_path(cached.subject.key, cached.timed_batch).read_bytes()
    atomic_files.write(store.certificate_path(cached.id), content)


def _copy_certificate_to_session(
    cached: Certificate, request: Request, session: LaunchContext
) -> None:
    """Copy a certificate from the cache to the results folder, and add its id to the session."""
    copy_cached_certificate(cached, session.store)
    session.certificates[certified_fields(request)] = cached.id


def _copy_batch_certificate_to_session(
    cached: Certificate, request: Request, session: LaunchContext
) -> None:
    """Copy a batch certificate to the results folder, and add its id to the session."""
    copy_cached_certificate(cached, session.store)
    key = batch_certified_fields(request)
    session.batch_certificates[key] = cached.id
    if cached.finding:
        session.wrong_batches[key] = cached.finding


def certificate_cache_path(key: str, batch: TimedBatch | None, cache: Path | None = None) -> Path:
    """Return the file of the certificate for the subject with this key, and its timed batch."""
    suffix = f"-{batch.batch_size}x{batch.threads}-rule{batch.rule}" if batch else ""
    return (cache or paths.cache_folder("certificates")) / f"{key}{suffix}.json"
