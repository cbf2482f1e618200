"""Write and read bundles. A bundle carries a run to another machine.

The other machine needs neither a network nor xfbench. It needs a shell and, for each framework, a
Python with NumPy and the framework.

A bundle is a folder with the launches and the verification cases of a plan. Each launch has a
folder with the worker and a script, and so have the cases of each kind of cell.

Importing a bundle that was run gives the same kinds of records and certificates as running xfbench
on the other machine. However, the records contain neither the noise nor the peak performance of the
other machine.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import shlex
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from xfbench.base import (
    atomic_files,
    digests,
    errors,
    paths,
    processes,
    safe_read,
    strict_json,
    tar_files,
)
from xfbench.base.errors import UsageError
from xfbench.base.process_variables import UNSET_FOR_BUNDLES, Purpose, select_variables
from xfbench.base.shared_files import write_file
from xfbench.base.tar_files import LimitedTar
from xfbench.environments import worker_archive
from xfbench.environments.environment import Environment, complete_draft
from xfbench.equality import cases, certify, jobs, timed_batch
from xfbench.equality.verify import Verifier, unverifiable_reason
from xfbench.execution import job, record_builder
from xfbench.execution.launch import LaunchContext
from xfbench.host import machine, sites
from xfbench.model import (
    adapter,
    capabilities,
    facts,
    origins,
    sealed,
    training,
    worker_reply,
)
from xfbench.model.certificate import (
    Certificate,
    CertifiedFields,
    TimedBatch,
    batch_certified_fields,
    certified_fields,
    single_rank_subject,
)
from xfbench.model.plan import Plan
from xfbench.model.record import Machine, Record
from xfbench.model.request import Request
from xfbench.model.sealed import MAX_DOCUMENT_BYTES
from xfbench.store import merging
from xfbench.store.results_folder import Store
from xfbench.workloads import workloads

_PLAN = "plan.json"
# A folder with one of these is a results folder or a submission.
_NOT_IN_A_BUNDLE = ("submission.json", "records", "packs", "certificates")
_SEED = 0
# Placeholders, because the other machine's interpreter and its prefix are unknown here. The script
# gets the interpreter from a shell variable, and nothing uses the prefix.
_PYTHON, _PREFIX = "@PYTHON@", Path("@PREFIX@")
_INSPECT = ("worker.pyz", "request.json", "reply.json")
_UNSET = [word for name in UNSET_FOR_BUNDLES for word in ("-u", name)]
# The files of an archive that belong to a bundle. Others, such as a kit's facts, are skipped.
_MEMBER = re.compile(r"plan\.json|(inspect|checks|launches)/\w[\w.-]*/\w[\w.-]*")
_MAX_MEMBER_BYTES, _MAX_MEMBERS_BYTES = 2**28, 2**32
_MAX_ARCHIVE_BYTES = 2**36  # with the files that are skipped
_MAX_EXPANSION = 100  # of a compressed archive
_MAX_MEMBERS = 1_000_000
_MAX_WORKER_BYTES = 2**25
_MAX_ARRAY_BYTES = 2**33  # of all ranks together: they are in memory at the same time
# Numbers in the images of a case, which the oracle computes: 222 images of 224 × 224 pixels.
_MAX_CASE_NUMBERS = 2**25
_USUAL_COMPRESSION = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of a worker's files
_CUT_OFF = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)
_RUN = """#!/bin/sh
# Runs the launches of this bundle: sh run.sh [FRAMEWORK=PYTHON ...]
# Each Python needs NumPy and the framework. What ended well is skipped, and the rest is done again.
cd "$(dirname "$0")" || exit 1
for pair in "$@"; do
    name=${pair%%=*}
    python=${pair#*=}
    [ "$name" != "$pair" ] || { echo "expected FRAMEWORK=PYTHON, not $pair" >&2; exit 2; }
    [ -f "interpreters/$name" ] || { echo "this bundle has no framework $name" >&2; exit 2; }
    command -v "$python" > /dev/null || { echo "$pair: no such program" >&2; exit 2; }
    printf '%s\\n' "$python" > "interpreters/$name"
done
ended_well() {
    [ "$(cat "$1/status" 2> /dev/null)" = 0 ] || return 1
    grep -q '"status": "ok"' "$1/reply.json" 2> /dev/null
}
bad=0
total=$(ls -d inspect/* checks/* launches/* 2> /dev/null | wc -l)
count=0
for folder in inspect/* checks/* launches/*; do
    [ -d "$folder" ] || continue
    count=$((count + 1))
    ended_well "$folder" || sh "$folder/start.sh"
    if ended_well "$folder"; then
        echo "$count/$total $folder: ok"
    else
        bad=1
        reason=$(grep -o '"reason": "[^"]*"' "$folder/reply.json" 2> /dev/null)
        echo "$count/$total $folder: exit status $(cat "$folder/status") $reason"
    fi
done
echo "Take this folder back and read it with: xfbench results import --bundle DIR"
exit $bad
"""
_START = """#!/bin/sh
cd "$(dirname "$0")" || exit 1
rm -f exit.* pid.* failed meeting meeting.* programs.*
PYTHON=$(cat ../../interpreters/{framework})
date -u +%Y-%m-%dT%H:%M:%S.000Z > started
{body}
echo "$status" > status.partial && mv status.partial status
"""
# The names of the first rank's files have no number.
_RANK = """suffix={n}; [ "$suffix" = 0 ] && suffix= || suffix=.$suffix
( $limit {line} > "stdout$suffix" 2> "stderr$suffix" & echo $! > pid.{n}
  wait $!; echo $? > exit.{n} ) &"""
# If one rank fails, the others are ended, because they may wait for the failed rank.
_WAIT = """status=
while [ -z "$status" ]; do
    status=0
    for n in {ranks}; do
        [ -s "exit.$n" ] || {{ status=; continue; }}
        one=$(cat "exit.$n")
        [ "$one" = 0 ] || {{ status=$one; echo "$n" > failed; break; }}
    done
    [ -n "$status" ] || sleep 1
done
for n in {everything}; do
    [ -s "exit.$n" ] || kill "$(cat "pid.$n")" 2> /dev/null
done
wait"""
_README = """A run of xfbench for another machine. Copy this folder to that machine and run:

    sh run.sh {example}=/path/to/python

Each Python needs NumPy and its framework{mpi}. Then copy the folder back, without `programs` (it
only has compiled programs), and run:

    xfbench results import --bundle DIR
"""


def write_carried_run(plan: Plan, folder: Path, say: Callable[[str], None]) -> None:
    """Write the plan's launches and its verification cases to `folder`, a new or empty folder.

    The bundle has the minimum number of launches of each supported cell. `say` gets the progress
    messages. Raises UsageError in these cases:

    - `folder` is not empty.
    - The plan needs a prepared data set or a memory allocator.
    - No framework supports any of the cells.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: name another folder with --bundle")
    min_launches = {cell: protocol.least for cell, protocol in plan.protocols}
    requests = [
        request
        for request in plan.requests
        if request.launch <= min_launches[request.cell()]
        and capabilities.refusal_reason(request) is None
    ]
    if data_set_name := next((request.data for request in requests if request.data_set), None):
        raise UsageError(
            f"--bundle does not support prepared data set {data_set_name}: "
            "use --data digits or --data synthetic"
        )
    if allocator := next((request.allocator for request in requests if request.allocator), None):
        raise UsageError(f"--bundle does not support --allocator {allocator}: remove --allocator")
    if not requests:
        raise UsageError("--bundle has nothing to write: no framework supports any of these cells")
    paths.make_folder(folder)
    paths.require_private(folder, "name another folder with --bundle", sticky=True)
    for name in ("inspect", "interpreters", "launches", "checks"):
        (folder / name).mkdir(parents=True)
    frameworks = list(dict.fromkeys(request.framework for request in requests))
    for name in frameworks:
        _write_inspection(folder, name)
        write_file(folder / "interpreters" / name, "python3\n")
    for number, request in enumerate(requests, 1):
        checkpoint_fields = job.build_checkpoint_fields(request, plan.checkpoint_dir)
        document = job.build_job_document(
            "train", request, training.workload_with_solver_of_cell(request), **checkpoint_fields
        )
        _write_job_and_script(
            document, request, folder / "launches" / f"{number:05d}", plan.time_limit
        )
    if plan.verify:
        _write_cases_for_later_run(requests, folder / "checks", plan.time_limit, say)
    write_file(folder / "run.sh", _RUN)
    with_mpi = any(request.strategy == "mpi" for request in requests)
    mpi = ", and mpi4py with the MPI that starts the ranks" if with_mpi else ""
    write_file(folder / "README", _README.format(example=frameworks[0], mpi=mpi))
    carried_plan = plan.model_copy(update={"requests": tuple(requests)})
    write_file(folder / _PLAN, carried_plan.model_dump_json(indent=1))


def _requests_and_single_ranks_to_verify(requests: Sequence[Request]) -> list[Request]:
    """Return one request for each kind of cell that can be verified.

    A request with several ranks can be verified only after one rank. Therefore its single-rank
    request is added before it.
    """
    kinds: dict[CertifiedFields, Request] = {}
    for request in _list_verifiable(requests):
        for verified_request in (
            (certify.single_rank_request(request), request) if request.ranks > 1 else (request,)
        ):
            kinds.setdefault(certified_fields(verified_request), verified_request)
    return list(kinds.values())


def _list_verifiable(requests: Sequence[Request]) -> list[Request]:
    return [request for request in requests if not unverifiable_reason(request)]


def _choose_for_each_batch(requests: Sequence[Request]) -> list[Request]:
    """Return one request for each batch certificate."""
    return [*{batch_certified_fields(request): request for request in requests}.values()]


def _case_folder_name(request: Request, documents: Sequence[dict[str, Any]]) -> str:
    """Return the name of the folder with the cases in `documents`."""
    fields = [*map(str, certified_fields(request)), request.threads]
    return digests.of_json([fields, list(documents)])[7:19]


def _write_cases_for_later_run(
    requests: Sequence[Request], checks: Path, time_limit: float, say: Callable[[str], None]
) -> None:
    """Write the verification cases of all requests to folders below `checks`, to be run later."""

    def write_cases(
        documents: Sequence[dict[str, Any]], request: Request, workload: Any, *rest: Any
    ) -> jobs.CaseResults:
        folder = checks / _case_folder_name(request, documents)
        if not folder.exists():
            folder.mkdir()
            document = jobs.copy_inputs_and_build_job(documents, request, workload, rest[2], folder)
            _write_job_and_script(document, request, folder, time_limit)
        return jobs.CaseResults({}, {case["name"]: "to be run later" for case in documents})

    verifier = Verifier(say, run=write_cases, all_at_once=True)
    for request in _requests_and_single_ranks_to_verify(requests):
        say(f"cases for {request.label()}")
        verifier.verify(request, _placeholder_environment(request.framework), _SEED)
    # Each batch has a folder of its own, so that one that fails costs no other.
    for request in _choose_for_each_batch(_list_verifiable(requests)):
        single_rank = certify.single_rank_request(request)
        environment = _placeholder_environment(request.framework)
        sizes = [request.batch_size_per_rank]
        timed_batch.verify_batch_sizes(verifier, single_rank, environment, sizes, _SEED)


def _placeholder_environment(framework: str) -> Environment:
    """Return an environment with placeholders for what only the other machine knows."""
    return Environment(framework, "python", Path(_PYTHON), _PREFIX, "", "", {}, "")


def _write_inspection(folder: Path, framework: str) -> None:
    """Write the job and the script that inspect the framework on the other machine."""
    framework_adapter = adapter.load(framework)
    inspection_folder = folder / "inspect" / framework
    inspection_folder.mkdir()
    document = {"action": "inspect", "module": framework_adapter.module}
    job.write_job_files({**document, "request": {"framework": framework}}, inspection_folder)
    command = f'{shlex.join(["env", *_UNSET])} "$PYTHON" {shlex.join(_INSPECT)}'
    body = f"{command} > stdout 2> stderr\nstatus=$?"
    _write_start_script(inspection_folder, framework, body)


def _write_job_and_script(
    document: dict[str, Any], request: Request, folder: Path, time_limit: float
) -> None:
    """Write the job `document` and the script that runs it with a limit of `time_limit` seconds."""
    folder.mkdir(exist_ok=True)
    if job.PROGRAM_CACHE in document:  # all folders of the bundle share the programs
        document = {**document, job.PROGRAM_CACHE: "../../programs"}
    job.write_job_files(document, folder)
    framework_adapter = adapter.load(request.framework)
    start, helpers = job.build_start_and_helpers(
        request, framework_adapter, _placeholder_environment(request.framework), Path()
    )
    commands = [*start.commands, *helpers]
    declared_names = {
        *framework_adapter.variables,
        *framework_adapter.kernels[request.kernel].variables,
        *sites.load_site(request.site).variables,
    }
    ranks, everything = (
        " ".join(map(str, range(count))) for count in (len(start.commands), len(commands))
    )
    lines = [f"limit=$(command -v timeout > /dev/null && echo timeout {time_limit:.0f})"]
    lines += [
        _RANK.format(n=n, line=_to_portable_shell_line(command, declared_names))
        for n, command in enumerate(commands)
    ]
    lines.append(_WAIT.format(ranks=ranks, everything=everything))
    _write_start_script(folder, request.framework, "\n".join(lines))


def _to_portable_shell_line(command: processes.Command, declared_names: Container[str]) -> str:
    """Return the command as a line for the other machine's shell.

    The line does not set variables that the command has from this process, such as PATH and
    CUDA_VISIBLE_DEVICES: the other machine has its own values. It sets those in `declared_names`.
    It unsets threads and ranks of that machine's shell.
    """
    inherited_names = select_variables(Purpose.RANK_OF_USER, command.environment)
    variables = [
        f"{name}={value}"
        for name, value in sorted(command.environment.items())
        if name in declared_names or not (name in inherited_names or name.startswith("NCCL_"))
    ]
    line = shlex.join(["env", *_UNSET, *variables, *command.argv])
    return line.replace(shlex.quote(_PYTHON), '"$PYTHON"')


def _write_start_script(folder: Path, framework: str, body: str) -> None:
    text = _START.format(framework=shlex.quote(framework), body=body)
    write_file(folder / "start.sh", text)


@dataclass
class _CarriedRun:
    """A bundle that was run on the other machine."""

    folder: Path
    plan: Plan

    @cached_property
    def digest(self) -> str:
        """A digest of the plan and of the replies of all cases. No two runs have the same."""
        files = [self.folder / _PLAN, *(self.folder / "checks").glob("*/reply*.json")]
        contents = {}
        for path in files:
            with suppress(OSError, ValueError):
                name = path.relative_to(self.folder).as_posix()
                contents[name] = safe_read.read_bytes(path, worker_reply.LONGEST)
        return digests.of_files(contents)

    def environment(self, framework: str) -> tuple[Environment, Machine] | None:
        """Return the framework's environment on the other machine, and the facts of that machine.

        Returns None if the framework could not be inspected there.
        """
        inspection_folder = self.folder / "inspect" / framework
        try:
            answer = worker_reply.read_reply(
                inspection_folder / "reply.json", _request_file_digest(inspection_folder)
            )
            machine_facts = machine.machine_from_facts(answer["machine"])
            framework_environment = complete_draft(answer, _placeholder_environment(framework))
        except worker_reply.WRONG:
            return None
        return (framework_environment, machine_facts) if answer["status"] == "ok" else None

    def missing_environment_reason(self, framework: str) -> str:
        """Return why the framework could not be inspected on the other machine."""
        inspection_folder = self.folder / "inspect" / framework
        if not (inspection_folder / "status").exists():
            return "it was not run on the other machine: run.sh did not get that far"
        try:
            return str(
                worker_reply.read_reply(
                    inspection_folder / "reply.json", _request_file_digest(inspection_folder)
                )["reason"]
            )
        except worker_reply.ReplyError:
            return "its interpreter did not reply on the other machine: see inspect/ in the bundle"

    @cached_property
    def _kinds_with_results(self) -> set[CertifiedFields]:
        kinds = set()
        for case_folder in (self.folder / "checks").glob("*"):
            if _read_outcome(case_folder) is None:
                continue
            try:
                content = safe_read.read_bytes(case_folder / "request.json", worker_reply.LONGEST)
                document = strict_json.parse(content)
                request = Request.model_validate(document["request"])
                is_batch = any("copies" in case for case in document["cases"])
            except (OSError, *worker_reply.WRONG):
                continue
            kinds.add(batch_certified_fields(request) if is_batch else certified_fields(request))
        return kinds

    def has_results_of_cases(self, request: Request, *, of_batch: bool = False) -> bool:
        """Return whether cases of the request, or of its timed batch, were run.

        If not, nobody needs what the oracle would compute for them.
        """
        if of_batch:
            request = certify.single_rank_request(request)
            return batch_certified_fields(request) in self._kinds_with_results
        return certified_fields(request) in self._kinds_with_results

    def read_case_results(
        self, documents: Sequence[dict[str, Any]], request: Request, *_: Any
    ) -> jobs.CaseResults:
        """Return the results of the verification cases of `request` on the other machine.

        `documents` describes the cases. If the bundle does not have these cases, the results are
        empty. Raises CheckError if the cases were not run or cannot be read.
        """
        case_folder = self.folder / "checks" / _case_folder_name(request, documents)
        if not case_folder.exists():
            return jobs.CaseResults({}, {})
        status = _read_outcome(case_folder)
        if status is None:
            raise jobs.CheckError(
                f"{request.label()}: its verification cases were not run on the other machine"
            )
        answer = job.read_and_merge_replies(
            case_folder, _request_file_digest(case_folder), request, status, self.plan.time_limit
        )
        return jobs.read_results(documents, request, answer, case_folder, _MAX_ARRAY_BYTES)


def is_carried_run(folder: Path) -> bool:
    """Return whether the folder is a bundle."""
    return (folder / _PLAN).is_file()


def check_is_nothing_else(folder: Path) -> None:
    """Raise UsageError if a bundle's folder is also a results folder or a submission.

    A sender could choose which checks apply to it.
    """
    for name in _NOT_IN_A_BUNDLE:
        if (folder / name).exists():
            raise UsageError(
                f"{folder} has {_PLAN} like a bundle, and {name} like a results folder or a "
                "submission: ask its sender for one of them; nothing was imported"
            )


@contextmanager
def open_bundle(source: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """Yield the folder of the bundle `source`, which is a folder or an archive of one.

    An archive (tar, also with gzip) is unpacked to a temporary folder. It may be cut off anywhere:
    what is there is unpacked, and `say` gets a message. Raises UsageError if it is no archive.
    """
    if source.is_dir():
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="xfbench-bundle-") as scratch:
        try:
            with tar_files.open_tar(
                source, _MAX_ARCHIVE_BYTES, _MAX_EXPANSION, _MAX_MEMBERS
            ) as archive:
                _unpack(archive, Path(scratch), say)
        except tar_files.LimitError as error:
            raise UsageError(f"{source} is too large for a bundle: {error}") from error
        except (OSError, *_CUT_OFF) as error:
            raise UsageError(f"{source} is neither a bundle nor an archive: {error}") from error
        yield Path(scratch)


def _unpack(archive: LimitedTar, folder: Path, say: Callable[[str], None]) -> None:
    """Unpack the bundle's files to `folder`, until the archive ends or is cut off."""
    remaining_bytes = _MAX_MEMBERS_BYTES
    members = archive.members()
    while True:
        try:
            member = next(members, None)
            if member is None:
                return
            if not member.isreg() or not _MEMBER.fullmatch(member.name):
                continue
            content = archive.read_member(member, min(_MAX_MEMBER_BYTES, remaining_bytes))
            remaining_bytes -= len(content)
        except _CUT_OFF as error:
            say(f"the archive is cut off ({error}): what is complete is imported")
            return
        target = folder / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, content)


def _read_worker(path: Path) -> dict[str, bytes]:
    """Return the content of each file in a worker's archive, by name.

    Raises ValueError if the archive or its content is larger than any worker.
    """
    with zipfile.ZipFile(io.BytesIO(safe_read.read_bytes(path, _MAX_WORKER_BYTES))) as file:
        members = file.infolist()
        if sum(member.file_size for member in members) > _MAX_WORKER_BYTES:
            raise ValueError(f"it is larger than {_MAX_WORKER_BYTES >> 20} MiB")
        if any(member.compress_type not in _USUAL_COMPRESSION for member in members):
            raise ValueError("its files are compressed in an unusual way")
        return {member.filename: file.read(member) for member in members}


def _check_workers(carried_run: _CarriedRun) -> None:
    """Raise UsageError if the bundle's worker is not that of the running xfbench.

    Records and certificates contain the worker's digest, which is computed here.
    """
    for framework in {request.framework for request in carried_run.plan.requests}:
        try:
            contents = _read_worker(carried_run.folder / "inspect" / framework / "worker.pyz")
        except (OSError, *_CUT_OFF, zipfile.BadZipFile):
            continue  # earlier bundles came back without their workers
        except (ValueError, RuntimeError) as error:
            raise UsageError(f"the bundle's worker of {framework}: {error}") from error
        if digests.of_files(contents) != worker_archive.worker_digest(framework):
            raise UsageError(
                f"the bundle's worker of {framework} is not that of this xfbench: import the "
                "bundle with the version of xfbench that wrote it"
            )


def import_carried_run(
    folder: Path, store: Store, say: Callable[[str], None], source: Path | None = None
) -> list[Record]:
    """Import the bundle `folder` into `store`, and return the record of each launch that was run.

    The certificates and records are noted as carried. The user's own certificates are neither used
    nor added to: what another machine returned decides nothing about launches on this one.
    Importing a bundle again returns the same records and stores no copies. `say` gets a message
    about what was not run. `source` is the archive that `folder` was unpacked from.

    Raises UsageError in these cases:

    - The folder is not a bundle, or is also a results folder or a submission.
    - Another version of xfbench wrote the bundle.
    """
    if not is_carried_run(folder):
        raise UsageError(f"{folder} is not a bundle: it has no {_PLAN}")
    check_is_nothing_else(folder)
    carried_run = _CarriedRun(folder, Plan.read(folder / _PLAN))
    _check_workers(carried_run)
    store.create_and_check_folders()
    context = LaunchContext(store)
    certificates: list[tuple[Certificate, bytes]] = []
    if carried_run.plan.verify:
        with tempfile.TemporaryDirectory(prefix="xfbench-carried-") as cache:
            _copy_certificates_of_earlier_import(carried_run, store, Path(cache))
            _verify_carried_cases(carried_run, context, Path(cache), say)
            certificates = _read_with_content(Path(cache))
    imported = {(record.request, record.created): record for record in store.records()}
    new_records: dict[str, tuple[Record, Path]] = {}
    records = []
    for record, launch_folder in _build_records(carried_run, context, say):
        # A record that was imported before may lack a certificate that is found now.
        earlier_record = imported.get((record.request, record.created))
        if earlier_record is None:
            new_records[record.id] = record, launch_folder
        records.append(earlier_record or record)
    merging.write_carried(
        store, source or folder, carried_run.digest, certificates, [*new_records.values()]
    )
    return records


def _build_records(
    carried_run: _CarriedRun, context: LaunchContext, say: Callable[[str], None]
) -> Iterator[tuple[Record, Path]]:
    """Yield the record of each launch that was run, and the folder of the launch.

    `say` gets a message about the launches that have no record.
    """
    protocols = dict(carried_run.plan.protocols)
    not_run: list[str] = []
    without_time: list[str] = []
    for number, request in enumerate(carried_run.plan.requests, 1):
        launch_folder = carried_run.folder / "launches" / f"{number:05d}"
        status = _read_outcome(launch_folder)
        if status is None:
            not_run.append(f"{request.label()} · launch {request.launch}")
            continue
        started = safe_read.read_tail(launch_folder / "started", 100).strip()
        if not _is_credible_time(started):
            without_time.append(f"{request.label()} · launch {request.launch}")
            continue
        fields: dict[str, Any] = {
            "created": started,
            "protocol": protocols.get(request.cell()),
            "workload": facts.workload_facts(training.workload_with_solver_of_cell(request)),
            "limit": None,
            "conditions": None,
            **context.certificate_fields(request),
        }
        environment_and_machine = carried_run.environment(request.framework)
        if environment_and_machine is None:
            reason = carried_run.missing_environment_reason(request.framework)
            record = Record.make(request=request, status="unavailable", reason=reason, **fields)
        else:
            fields["machine"] = environment_and_machine[1]
            answer = job.read_and_merge_replies(
                launch_folder,
                _request_file_digest(launch_folder),
                request,
                status,
                carried_run.plan.time_limit,
            )
            framework_adapter = adapter.load(request.framework)
            record = record_builder.build_record(
                request, answer, framework_adapter, environment_and_machine[0], fields
            )
        yield record, launch_folder
    _say_what_is_missing("not run on the other machine", not_run, say)
    _say_what_is_missing("not imported, its start has no valid time", without_time, say)


def _is_credible_time(text: str) -> bool:
    try:
        return sealed.future_error(sealed.check_time(text)) is None
    except ValueError:
        return False


def _copy_certificates_of_earlier_import(
    carried_run: _CarriedRun, store: Store, cache: Path
) -> None:
    """Copy the certificates of an earlier import of this bundle to the folder `cache`."""
    known_origins = origins.read(store.folder)
    for certificate_id, note in known_origins.certificates.items():
        if note.bundle != carried_run.digest:
            continue
        path = store.certificate_path(certificate_id)
        with suppress(OSError, ValueError):  # it is missing or damaged
            content = safe_read.read_bytes(path, MAX_DOCUMENT_BYTES, follow_link=True)
            stored = Certificate.read(content)
            target = certify.certificate_cache_path(stored.subject.key, stored.timed_batch, cache)
            atomic_files.write(target, content)


def _read_with_content(cache: Path) -> list[tuple[Certificate, bytes]]:
    """Return each certificate in the folder `cache`, and its bytes."""
    contents = [path.read_bytes() for path in sorted(cache.glob("*.json"))]
    return [(Certificate.read(content), content) for content in contents]


def _say_what_is_missing(words: str, labels: Sequence[str], say: Callable[[str], None]) -> None:
    if labels:
        more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        say(f"{words}: {labels[0]}{more}")


def _verify_carried_cases(
    carried_run: _CarriedRun, context: LaunchContext, cache: Path, say: Callable[[str], None]
) -> None:
    """Verify the bundle's cases. Write the certificates to `cache`, and their ids to `context`.

    `say` gets the verdicts other than "equal".
    """
    without_cases: list[str] = []
    without_batch: list[str] = []
    verifier = Verifier(say, run=carried_run.read_case_results, all_at_once=True)
    for request in _requests_and_single_ranks_to_verify(carried_run.plan.requests):
        environment_and_machine = carried_run.environment(request.framework)
        if environment_and_machine is None:
            continue
        subject = certify.build_subject(request, *environment_and_machine)
        certificate = certify.find_cached_certificate(subject, cache=cache)
        if certificate is None and not carried_run.has_results_of_cases(request):
            without_cases.append(request.label())
            continue
        if certificate is None and _case_numbers(request) > _MAX_CASE_NUMBERS:
            say(f"not verified: {request.label()}: too many ranks for the oracle of an import")
            continue
        try:
            certificate = certificate or _verify_and_store_unless_unsupported(
                verifier, request, *environment_and_machine, cache
            )
        except errors.XfbenchError as error:
            say(f"not verified: {error}")
            continue
        if certificate is None or certificate.verdict != "equal":
            finding = certificate.finding if certificate else "it cannot be verified"
            say(f"{request.label()}: {finding}")
        elif certificate.verdict == "equal":
            context.certificates[certified_fields(request)] = certificate.id
    for request in _choose_for_each_batch(carried_run.plan.requests):
        environment_and_machine = carried_run.environment(request.framework)
        if environment_and_machine is None or certified_fields(request) not in context.certificates:
            continue
        environment, machine_facts = environment_and_machine
        subject = single_rank_subject(certify.build_subject(request, environment, machine_facts))
        batch = TimedBatch.from_request(request)
        if not (
            carried_run.has_results_of_cases(request, of_batch=True)
            or certify.find_cached_certificate(subject, batch, cache)
        ):
            without_batch.append(f"{request.label()} · batch {batch.batch_size}")
            continue
        for _, batch_certificate in certify.certify_timed_batches(
            verifier,
            [request],
            environment,
            say,
            machine_facts,
            unproven=context.unproven_batches,
            cache=cache,
        ):
            context.batch_certificates[batch_certified_fields(request)] = batch_certificate.id
    _say_what_is_missing("cases not run on the other machine", without_cases, say)
    _say_what_is_missing("batches not verified on the other machine", without_batch, say)


def _case_numbers(request: Request) -> int:
    """Return how many numbers the images of a case have.

    The images grow with the ranks, which the plan of a stranger gives. Timed batches of any size
    repeat a few images.
    """
    workload = workloads()[request.workload]
    images = request.ranks * cases.case_batch_size_per_rank(workload)
    return images * math.prod(workload.network.input_shape)


def _verify_and_store_unless_unsupported(
    verifier: Verifier,
    request: Request,
    framework_environment: Environment,
    machine_facts: Machine,
    cache: Path,
) -> Certificate | None:
    verdict = certify.verify_after_single_rank(
        verifier, request, framework_environment, _SEED, machine_facts, cache
    )
    return certify.store_verdict_unless_unsupported(
        verdict, framework_environment, _SEED, machine_facts, cache
    )


def _request_file_digest(folder: Path) -> str:
    """Return the digest of the job in `folder`, or an empty string if there is no job."""
    try:
        return digests.of_bytes(safe_read.read_bytes(folder / "request.json", worker_reply.LONGEST))
    except (OSError, ValueError):
        return ""


def _read_outcome(folder: Path) -> processes.Outcome | None:
    """Return how the launch in `folder` ended, or None if it was not run."""
    try:
        status, rank = (
            int(safe_read.read_tail(folder / name, 9) or 0) for name in ("status", "failed")
        )
    except ValueError:
        return None
    if not (folder / "status").exists():
        return None
    if status == 124:  # the status of timeout(1)
        return processes.Outcome(0, timed_out=True)
    return processes.Outcome(128 - status if status > 128 else status, rank=rank)
