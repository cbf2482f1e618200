"""Certificates: what was proven equal, bound to the digests of all that it depends on.

A certificate covers every launch with the same workload, adapter, environment, kernel,
device kind and precision on the same kind of machine, and none else. Its name is the digest
of its content, so that an edited one is recognised.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from xfbench.base import atomic_files, digests, safe_read
from xfbench.base.errors import XfbenchError
from xfbench.base.version import __version__
from xfbench.model import training
from xfbench.model.provenance import unmeasured_source
from xfbench.model.record import Machine, Record
from xfbench.model.request import Request, StrategyOptions
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, EditedError, SealedDocument

CertifiedFields = tuple[Any, ...]
# How much more than measured rounding is allowed: the one factor for everything.
SAFETY = 10

SCHEMA: Literal["xfbench.certificate/1"] = "xfbench.certificate/1"


class CertificateError(XfbenchError):
    """A file is no certificate, or was changed after it was made."""


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Subject(_FrozenModel):
    """What a certificate is about: as soon as one of these differs, it says nothing."""

    framework: str
    workload: str
    workload_digest: str
    adapter_digest: str
    environment_digest: str
    kernel: str
    device: str
    precision: str
    ranks: int
    strategy: str
    strategy_options: StrategyOptions = ()
    microarchitecture: str
    accelerators: tuple[str, ...]

    @classmethod
    def from_request(
        cls,
        request: Request,
        workload_digest: str,
        adapter_digest: str,
        environment_digest: str,
        machine: Machine,
    ) -> Self:
        return cls(
            framework=request.framework,
            workload=request.workload,
            workload_digest=workload_digest,
            adapter_digest=adapter_digest,
            environment_digest=environment_digest,
            kernel=request.kernel,
            device=request.device,
            precision=request.precision,
            ranks=request.ranks,
            strategy=request.strategy,
            strategy_options=request.strategy_options,
            microarchitecture=machine.microarchitecture,
            accelerators=machine.accelerators,
        )

    @property
    def key(self) -> str:
        """A file name: equal subjects, equal keys, also from before there were options."""
        omitted_fields = set() if self.strategy_options else {"strategy_options"}
        return digests.of_json(self.model_dump(mode="json", exclude=omitted_fields))[7:39]


class Check(_FrozenModel):
    """One kind of check: how many quantities, the loosest tolerance, the largest error.

    `tolerance` is the median over quantities, relative; `loosest` the largest; `excess` the
    largest error as a multiple of what it may be, None where that has no bound.
    """

    kind: str
    quantities: int
    tolerance: float
    loosest: float
    excess: float | None


class Certificate(SealedDocument):
    """What was found about a subject. Only one whose verdict is "equal" lets it be ranked."""

    schema_: Literal["xfbench.certificate/1"] = Field(default=SCHEMA, alias="schema")
    subject: Subject
    verdict: Literal["equal", "different"]
    finding: str | None = None
    safety_factor: float
    seed: int
    checks: tuple[Check, ...]
    framework_version: str
    xfbench_version: str = __version__

    def write(self, target: Path) -> None:
        """Keep it in a file, whole or not at all."""
        atomic_files.write(target, self.model_dump_json(by_alias=True, indent=1).encode() + b"\n")


def read(path: Path) -> Certificate:
    """The certificate in a file. Raises CertificateError if it is none or was edited."""
    try:
        return Certificate.read(safe_read.read_bytes(path, MAX_DOCUMENT_BYTES, follow_link=True))
    except EditedError as error:
        raise CertificateError(f"{path.name} was edited: {error}") from error
    except (ValidationError, OSError, ValueError) as error:
        raise CertificateError(f"{path.name} is no certificate: {error}".split("\n")[0]) from error


def read_folder(results: Path) -> dict[str, Certificate | str]:
    """Every certificate of a results folder by the id in its name, or what is wrong with it."""
    certificates: dict[str, Certificate | str] = {}
    for path in sorted((results / "certificates").glob("*.json")):
        try:
            certificates[f"sha256:{path.stem}"] = read(path)
        except CertificateError as error:
            certificates[f"sha256:{path.stem}"] = str(error)
    return certificates


def coverage_error(certificate: Certificate, record: Record) -> str | None:
    """Why the certificate does not cover the record, in one line; None if it does."""
    request, facts, software, machine = (
        record.request,
        record.workload,
        record.software,
        record.machine,
    )
    if reason := unmeasured_source(record):
        return reason
    if certificate.verdict != "equal":
        return "the certificate says: different"
    if certificate.id != record.certificate:
        return "the certificate is not the one that the record names"
    if request is None or facts is None or software is None or machine is None:
        return "the record does not say what ran"
    subject = Subject.from_request(
        request,
        facts.digest,
        software.adapter_digest,
        software.environment_digest,
        machine,
    )
    for name in Subject.model_fields:
        record_value, certified_value = getattr(subject, name), getattr(certificate.subject, name)
        if record_value != certified_value:
            words = name.replace("_", " ")
            return (
                f"the certificate is for another {words}: "
                f"{_abbreviate(certified_value)}, not {_abbreviate(record_value)}"
            )
    return None


def _abbreviate(value: Any) -> str:
    text = str(value)
    if isinstance(value, tuple):  # of names, or of options with their values
        words = [
            option if isinstance(option, str) else f"{option[0]}={option[1]}" for option in value
        ]
        text = ", ".join(words) or "none"
    return text[:19] if text.startswith("sha256:") else text


def certified_fields(request: Request) -> CertifiedFields:
    """What of a request decides which certificate covers it: threads, batch and data do not."""
    return (
        request.framework,
        request.workload,
        request.kernel,
        request.device,
        request.precision,
        request.ranks,
        request.strategy,
        request.strategy_options,
        training.build_workload(request).solver,
    )
