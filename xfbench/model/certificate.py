"""Certificates of verified networks, bound to the digests of everything they depend on.

A certificate covers every launch with the same workload, adapter, environment, kernel, device kind,
precision, ranks and strategy on the same kind of machine. It covers no other launch. If it was
created for a git revision, the worker must be the same too. The name of a certificate's file is the
digest of its content. Therefore an edited certificate is detected.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from xfbench.base import atomic_files, digests, safe_read
from xfbench.base.errors import XfbenchError
from xfbench.base.version import __version__
from xfbench.model import origins, training
from xfbench.model.machines import list_gpu_names, list_used_models
from xfbench.model.provenance import unmeasured_source
from xfbench.model.record import Machine, Record
from xfbench.model.request import Request, StrategyOptions
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, EditedError, SealedDocument

CertifiedFields = tuple[Any, ...]
_MAX_GPUS = 16  # of a machine, in certificates of earlier versions
# Tolerance as a multiple of the measured rounding error; all checks use this factor.
SAFETY = 10

SCHEMA: Literal["xfbench.certificate/1"] = "xfbench.certificate/1"
BATCH_SCHEMA: Literal["xfbench.batch-certificate/1"] = "xfbench.batch-certificate/1"
# Number of the rule for timed batches. Raise it if what is compared changes, or its limits: then
# batch certificates of the earlier rule prove nothing, and the batches are verified again.
BATCH_RULE = 2


class CertificateError(XfbenchError):
    """Error for a file that is not a certificate, or that was edited."""


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Subject(_FrozenModel):
    """What a certificate covers: all launches that have the same value in each of these fields.

    - `worker_digest`: the digest of the worker's code, for a request with a revision; else None.
      The worker of a revision may differ from the worker of the xfbench that verifies.
    """

    framework: str
    workload: str
    workload_digest: str
    adapter_digest: str
    worker_digest: str | None = None
    environment_digest: str
    kernel: str
    device: str
    precision: str
    ranks: int
    strategy: str
    strategy_options: StrategyOptions = ()
    microarchitecture: str
    accelerators: tuple[str, ...]  # on GPUs, the models that the ranks use

    @classmethod
    def from_request(
        cls,
        request: Request,
        workload_digest: str,
        adapter_digest: str,
        worker_digest: str,
        environment_digest: str,
        machine: Machine,
        gpu_names: Sequence[str] = (),
    ) -> Self:
        """Return the subject of a request on this machine.

        `gpu_names` are the names of the ranks' GPUs according to NVML, as far as known.
        """
        is_on_gpu = request.device != "cpu"
        return cls(
            framework=request.framework,
            workload=request.workload,
            workload_digest=workload_digest,
            adapter_digest=adapter_digest,
            worker_digest=worker_digest if request.revision else None,
            environment_digest=environment_digest,
            kernel=request.kernel,
            device=request.device,
            precision=request.precision,
            ranks=request.ranks,
            strategy=request.strategy,
            strategy_options=request.strategy_options,
            microarchitecture=machine.microarchitecture,
            accelerators=list_used_models(machine, gpu_names)
            if is_on_gpu
            else machine.accelerators,
        )

    def covers(self, subject: Subject, machine_accelerators: tuple[str, ...] = ()) -> bool:
        """Return whether a certificate for this subject covers launches of `subject`.

        `machine_accelerators` are all GPUs of the machine of the launches. Certificates of earlier
        versions name all of them, as often as the machine had them.
        """
        if self.model_copy(update={"accelerators": subject.accelerators}) != subject:
            return False
        return self._covers_accelerators(subject, machine_accelerators)

    def _covers_accelerators(self, subject: Subject, machine_accelerators: tuple[str, ...]) -> bool:
        if self.device == "cpu":
            return self.accelerators == subject.accelerators
        return (
            tuple(dict.fromkeys(self.accelerators)) == subject.accelerators
            or self.accelerators == machine_accelerators
        )

    @property
    def earlier_keys(self) -> list[str]:
        """The keys of this subject in earlier versions, which listed each GPU of the machine."""
        if self.device == "cpu":
            return []
        return [
            self.model_copy(update={"accelerators": self.accelerators * count}).key
            for count in range(2, _MAX_GPUS + 1)
        ]

    @property
    def key(self) -> str:
        """A file name for the subject. Equal subjects have equal keys."""
        optional_fields = ("strategy_options", "worker_digest")
        omitted_fields = {name for name in optional_fields if not getattr(self, name)}
        return digests.of_json(self.model_dump(mode="json", exclude=omitted_fields))[7:39]


class Check(_FrozenModel):
    """The result of one kind of check, for all quantities that it compared.

    - `kind`: name of the kind of check.
    - `quantities`: number of compared quantities.
    - `tolerance`: median of the quantities' relative tolerances.
    - `loosest`: largest relative tolerance.
    - `excess`: largest error as a multiple of its tolerance; None: infinite.
    - `undecidable`: number of quantities that may be rounding only, because their tolerance is at
      least as large as they are. `tolerance` and `loosest` leave them out.
    """

    kind: str
    quantities: int
    tolerance: float
    loosest: float
    excess: float | None
    undecidable: int = 0


class TimedBatch(_FrozenModel):
    """The batch for which the gradients were verified.

    - `batch_size`: number of images on one rank.
    - `threads`: number of threads of the rank.
    - `rule`: number of the rule by which it was verified. The first certificates do not state it.
    """

    batch_size: int
    threads: int
    rule: int = 1

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """Return the batch that each rank of the request trains on, with today's rule."""
        return cls(batch_size=request.batch_size_per_rank, threads=request.threads, rule=BATCH_RULE)

    def is_same_batch(self, batch: TimedBatch) -> bool:
        """Return whether the batches are equal, whatever the rules."""
        return (self.batch_size, self.threads) == (batch.batch_size, batch.threads)


class Certificate(SealedDocument):
    """The verdict on a subject. Only cells with the verdict "equal" are ranked.

    A batch certificate has a `timed_batch`. It is the verdict on the gradients of this batch only,
    on one rank, and its schema is BATCH_SCHEMA.

    - `finding`: how the networks differ; None: they are equal.
    - `safety_factor`: tolerance as a multiple of the measured rounding error.
    - `kernel_evidence`: what showed which kernels computed the gradients of a timed batch.
    """

    schema_: Literal["xfbench.certificate/1", "xfbench.batch-certificate/1"] = Field(
        default=SCHEMA, alias="schema"
    )
    subject: Subject
    verdict: Literal["equal", "different"]
    finding: str | None = None
    safety_factor: float
    seed: int
    checks: tuple[Check, ...]
    framework_version: str
    xfbench_version: str = __version__
    timed_batch: TimedBatch | None = None
    kernel_evidence: tuple[str, ...] = ()
    # The certificate was made elsewhere, so it speaks of these records, and of those that name it.
    _foreign_records: Container[str] | None = PrivateAttr(default=None)

    @property
    def is_foreign(self) -> bool:
        """Whether the certificate was made elsewhere: imported, submitted or carried."""
        return self._foreign_records is not None

    def may_speak_of(self, record: Record) -> bool:
        """Return whether the certificate may decide about a record.

        A certificate that was made elsewhere says nothing about records that were measured here.
        """
        return (
            self._foreign_records is None
            or record.id in self._foreign_records
            or self.id in (record.certificate, record.batch_certificate)
        )

    def of_others(self, foreign_records: Container[str]) -> Self:
        """Return the certificate as one that was made elsewhere, as were `foreign_records`."""
        foreign = self.model_copy()
        foreign._foreign_records = foreign_records
        return foreign

    def write(self, target: Path) -> None:
        """Write the certificate to the file `target` atomically."""
        atomic_files.write(target, self.model_dump_json(by_alias=True, indent=1).encode() + b"\n")


def read(path: Path) -> Certificate:
    """Read a certificate from a file. Raises CertificateError if it is invalid or was edited."""
    try:
        return Certificate.read(safe_read.read_bytes(path, MAX_DOCUMENT_BYTES, follow_link=True))
    except EditedError as error:
        raise CertificateError(f"{path.name} was edited: {error}") from error
    except (ValidationError, OSError, ValueError) as error:
        raise CertificateError(
            f"{path.name} is not a certificate: {error}".split("\n")[0]
        ) from error


def read_certificates(results_folder: Path) -> dict[str, Certificate | str]:
    """Return the certificates in a results folder by id. The id is in the file name.

    If a certificate cannot be read, the error text replaces it. A certificate that was made
    elsewhere speaks only of records that were measured elsewhere, or that name it.
    """
    certificates: dict[str, Certificate | str] = {}
    known_origins = origins.read(results_folder)
    foreign_records = origins.foreign_records(results_folder)
    for path in sorted((results_folder / "certificates").glob("*.json")):
        certificate_id = f"sha256:{path.stem}"
        try:
            stored = read(path)
        except CertificateError as error:
            certificates[certificate_id] = str(error)
        else:
            has_own_name = stored.id == certificate_id
            if certificate_id in known_origins.certificates or known_origins.problems:
                stored = stored.of_others(foreign_records)
            certificates[certificate_id] = (
                stored if has_own_name else f"{path.name} has the content of {stored.id}"
            )
    return certificates


def coverage_error(certificate: Certificate, record: Record) -> str | None:
    """Return why the certificate does not cover the record, in one line; None if it covers it.

    A record that names no certificate may be covered by one that was made later.
    """
    if certificate.verdict != "equal" and not unmeasured_source(record):
        finding = f": {certificate.finding}" if certificate.finding else ""
        return f"verified as different{finding}"
    return mismatch_error(certificate, record)


def mismatch_error(certificate: Certificate, record: Record) -> str | None:
    """Return why the certificate is for something else than the record, whatever its verdict."""
    if reason := unmeasured_source(record):
        return reason
    is_of_batch = certificate.timed_batch is not None
    if certificate.id == (record.certificate if is_of_batch else record.batch_certificate):
        return "the record names a certificate of another kind"
    # Another batch certificate may count, too: see `find_batch_certificate_id`.
    if not is_of_batch and record.certificate not in (None, certificate.id):
        return "the certificate is not the one that the record names"
    subject = subject_of_record(record)
    if subject is None or record.request is None:
        return "the record does not say what ran"
    if certificate.timed_batch:
        subject = single_rank_subject(subject)
        timed_batch = TimedBatch.from_request(record.request)
        if not certificate.timed_batch.is_same_batch(timed_batch):
            return (
                f"the certificate is for {_describe_batch(certificate.timed_batch)}, not "
                f"{_describe_batch(timed_batch)}"
            )
    accelerators = record.machine.accelerators if record.machine else ()
    if certificate.subject.covers(subject, accelerators):
        return None
    for name in Subject.model_fields:
        record_value, certified_value = getattr(subject, name), getattr(certificate.subject, name)
        if record_value != certified_value:
            words = name.replace("_", " ")
            texts = [_to_text_with_short_digest(value) for value in (certified_value, record_value)]
            return f"the certificate is for another {words}: {texts[0]}, not {texts[1]}"
    return None


def find_certificate_id(
    record: Record, certificates: Mapping[str, Certificate | str]
) -> str | None:
    """Return the id of the certificate that decides whether the record may be ranked.

    It is the one that the record names. If it names none, it is one of `certificates` with the same
    subject. One that says "different" goes first, because it speaks against the others. The result
    is None if there is none, or if the launch is not ok and therefore needs none.
    """
    if record.certificate or not certificates:
        return record.certificate
    candidates = _find_candidates(record, certificates, None)
    return min(candidates, key=lambda each: candidates[each].verdict == "equal", default=None)


def find_batch_certificate_id(
    record: Record, certificates: Mapping[str, Certificate | str]
) -> str | None:
    """Return the id of the certificate for the record's timed batch. None if there is none.

    It is one of `certificates`, or the one that the record names. One that says "different" goes
    first, even if the record names another: the library may choose its algorithms by trying.
    Certificates of another rule prove nothing. One of them counts only if it says "different" and
    there is none of today's rule.
    """
    named = record.batch_certificate
    if record.request is None or not certificates:
        return named
    candidates = _find_candidates(record, certificates, TimedBatch.from_request(record.request))
    if named and named not in candidates:
        return named

    counting = {
        certificate_id: candidate
        for certificate_id, candidate in candidates.items()
        if candidate.verdict == "different" or not _is_of_other_rule(candidate)
    }

    def sort_key(certificate_id: str) -> tuple[bool, bool, bool]:
        candidate = counting[certificate_id]
        is_equal = candidate.verdict == "equal"
        return _is_of_other_rule(candidate), is_equal, certificate_id != named

    return min(counting, key=sort_key, default=None)


def find_certificate_ids(
    record: Record, certificates: Mapping[str, Certificate | str]
) -> list[str]:
    """Return the ids of all certificates that belong to the record, or that it names."""
    ids = (
        find_certificate_id(record, certificates),
        find_batch_certificate_id(record, certificates),
        record.batch_certificate,
    )
    return [*dict.fromkeys(filter(None, ids))]


def _is_of_other_rule(certificate: Certificate) -> bool:
    return certificate.timed_batch is not None and certificate.timed_batch.rule != BATCH_RULE


def _find_candidates(
    record: Record,
    certificates: Mapping[str, Certificate | str],
    timed_batch: TimedBatch | None,
) -> dict[str, Certificate]:
    """Return the certificates of the record's subject, or of its timed batch, by id.

    The result is empty if the launch is not ok and therefore needs none.
    """
    subject = subject_of_record(record)
    if record.status != "ok" or unmeasured_source(record) or subject is None:
        return {}
    if timed_batch:
        subject = single_rank_subject(subject)
    return {
        certificate_id: certificate
        for certificate_id, certificate in certificates.items()
        if isinstance(certificate, Certificate)
        and certificate.may_speak_of(record)
        # Most certificates differ in these. Comparing whole subjects is slow.
        and _is_of_batch(certificate, timed_batch)
        and certificate.subject.framework == subject.framework
        and certificate.subject.workload_digest == subject.workload_digest
        and certificate.subject.covers(
            subject, record.machine.accelerators if record.machine else ()
        )
    }


def _is_of_batch(certificate: Certificate, timed_batch: TimedBatch | None) -> bool:
    """Return whether the certificate is for this batch, of any rule. None: for no timed batch."""
    if timed_batch is None or certificate.timed_batch is None:
        return certificate.timed_batch is timed_batch
    return certificate.timed_batch.is_same_batch(timed_batch)


def single_rank_subject(subject: Subject) -> Subject:
    """Return the subject with one rank: on it, the gradients of a timed batch are verified."""
    return subject.model_copy(update={"ranks": 1, "strategy": "none", "strategy_options": ()})


def _describe_batch(batch: TimedBatch) -> str:
    return f"{batch.batch_size} images and {batch.threads} threads"


def subject_of_record(record: Record) -> Subject | None:
    """Return what a certificate must be valid for to cover the record; None: it does not say."""
    request, facts, software, machine = (
        record.request,
        record.workload,
        record.software,
        record.machine,
    )
    if request is None or facts is None or software is None or machine is None:
        return None
    return Subject.from_request(
        request,
        facts.digest,
        software.adapter_digest,
        software.worker_digest,
        software.environment_digest,
        machine,
        list_gpu_names(record),
    )


def _to_text_with_short_digest(value: Any) -> str:
    text = str(value)
    if isinstance(value, tuple):  # names, or options with their values
        words = [
            option if isinstance(option, str) else f"{option[0]}={option[1]}" for option in value
        ]
        text = ", ".join(words) or "none"
    return text[:19] if text.startswith("sha256:") else text


def certified_fields(request: Request) -> CertifiedFields:
    """Return the fields of a request that decide which certificate covers it.

    Threads, batch and data are not among these fields.
    """
    return (
        request.environment_key,
        request.workload,
        request.kernel,
        request.device,
        request.precision,
        request.ranks,
        request.strategy,
        request.strategy_options,
        training.workload_with_solver_of_cell(request).solver,
    )


def batch_certified_fields(request: Request) -> CertifiedFields:
    """Return the fields of a request that decide which certificate covers its timed batch."""
    return (*certified_fields(request), TimedBatch.from_request(request))
