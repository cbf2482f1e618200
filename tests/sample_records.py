"""Records, certificates and other documents for tests, made without a launch."""

import json

from xfbench.base import digests
from xfbench.host import machine
from xfbench.model import facts
from xfbench.model.certificate import (
    BATCH_SCHEMA,
    Certificate,
    Subject,
    TimedBatch,
    single_rank_subject,
    subject_of_record,
)
from xfbench.model.record import Record, Software
from xfbench.statistics import Block
from xfbench.store.tuning_results import Figure, Tuning
from xfbench.workloads import workloads

SOFTWARE = Software(
    xfbench_version="0",
    git_commit=None,
    git_dirty=None,
    worker_digest="sha256:1",
    adapter_digest="sha256:2",
    environment_digest="sha256:3",
    packages={},
)


def make_block(launch, session="a session"):
    """Return the block of a launch number in a session."""
    return Block(session, 0, launch, 0)


def vary_record(record, *, request=None, seconds=None, **fields):
    """Return a copy of a record with changed fields, request fields and step time in seconds."""
    values = {name: getattr(record, name) for name in Record.model_fields}
    values |= fields
    if request:
        values["request"] = record.request.model_copy(update=request)
    if seconds:
        step_seconds = tuple(seconds * (1 + 0.01 * (n % 2)) for n in range(20))
        values["measurement"] = record.measurement.model_copy(update={"step_seconds": step_seconds})
    if "cell" not in fields:
        values["cell"] = digests.of_json(values["request"].cell_digest_fields())
    return Record.make(**{k: v for k, v in values.items() if k not in ("id", "schema_")})


def build_certificate(subject, verdict="equal", finding=None):
    """Return a certificate of a subject with this verdict, without any check."""
    return Certificate.make(
        subject=subject,
        verdict=verdict,
        finding=finding,
        safety_factor=10.0,
        seed=0,
        checks=(),
        framework_version="1.0",
    )


def build_batch_certificate(record, verdict="equal", finding=None, **batch_changes):
    """Return a certificate for the timed batch of a record, with changes in the batch."""
    batch = TimedBatch.from_request(record.request).model_copy(update=batch_changes)
    subject = single_rank_subject(subject_of_record(record))
    fields = build_certificate(subject, verdict, finding).model_dump(exclude={"id", "schema_"})
    return Certificate.make(**{**fields, "schema_": BATCH_SCHEMA, "timed_batch": batch})


def write_older_certificate(certificate, home):
    """Write a certificate to the cache in `home`, as an earlier version did; return its id.

    That version had fewer fields. The id is the digest of those fields.
    """
    document = certificate.document()
    del document["id"], document["subject"]["strategy_options"]
    older_document = {"id": digests.of_json(document), **document}
    path = home / "certificates" / f"{certificate.subject.key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(older_document))
    return older_document["id"]


def build_record_certificate(record, **changes):
    """Return a certificate for a record, with the changed fields in its subject."""
    subject = Subject.from_request(
        record.request,
        record.workload.digest,
        SOFTWARE.adapter_digest,
        SOFTWARE.worker_digest,
        SOFTWARE.environment_digest,
        machine.describe_machine(),
    )
    return build_certificate(subject.model_copy(update=changes))


def make_certified_record(record, **fields):
    """Return a record that `record` makes with these fields, and the certificate that covers it."""
    certificate = build_record_certificate(record())
    covered_fields = {
        "software": SOFTWARE,
        "machine": machine.describe_machine(),
        "certificate": certificate.id,
    }
    return record(steps=(0.11, 0.12), launch=7, fields={**covered_fields, **fields}), certificate


UNKNOWN_CERTIFICATE = f"sha256:{'9' * 64}"  # a record that names it is not ranked


def certify_records(records):
    """Return the records, each with a certificate that covers it, and the certificates by id."""
    certified_records, certificates = [], {}
    for record in records:
        subject = subject_of_record(record)
        existing = next(
            (proof for proof in certificates.values() if proof.subject == subject),
            None,
        )
        certificate = existing or build_certificate(subject)
        certificates[certificate.id] = certificate
        certified_records.append(vary_record(record, cell=record.cell, certificate=certificate.id))
    return certified_records, certificates


def build_tuning(best, default, **fields):
    """Return a tuning result for two cells of LeNet, without any measurement."""
    figure = Figure(value=1.25, low=1.2, high=1.3, launches=5, label="claim")
    defaults = {
        "machine": machine.describe_machine(),
        "framework_version": "1.0",
        "environment_digest": "sha256:" + "1" * 64,
        "adapter_digest": "sha256:" + "2" * 64,
        "workload_digest": facts.workload_facts(workloads()["lenet"]).digest,
        "verified": True,
        "space": {"threads": (1, 2)},
        "settings": 2,
        "seed": 0,
        "budget_seconds": None,
        "rungs": (),
        "dropped": (),
        "best": best,
        "default": default,
        "default_reason": None,
        "runner_up": default,
        "confirmed": True,
        "images_per_second": figure,
        "over_default": figure,
        "over_runner_up": figure,
        "ended_by_budget": False,
        "launches": 10,
        "search_seconds": 0.0,
        "machine_seconds": 10.0,
        "records": (),
    }
    return Tuning.make(**{**defaults, **fields})


def build_link_figures(kind, name, sent):
    """Return what a rank reports of a link on which it sent so many bytes."""
    return {"kind": kind, "name": name, "sent_bytes": sent, "received_bytes": 2 * sent}
