"""Runs one job in a framework's interpreter and returns its reply.

A job contains everything that the worker needs. Every failure becomes a status and a reason. The
run folder keeps the command, so that you can run the job again by hand.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from xfbench.base import digests, private_names, processes, safe_read
from xfbench.base.errors import UnavailableError, UsageError
from xfbench.base.shared_files import copy_content, write_file
from xfbench.environments import allocators, environment, worker_archive
from xfbench.environments.environment import Environment
from xfbench.execution import probing, ranks, starting
from xfbench.execution.starting import Start
from xfbench.execution.watch import Watch
from xfbench.host import memory, sites
from xfbench.launchers import slurm
from xfbench.model import adapter, worker_reply
from xfbench.model.request import Request
from xfbench.model.strategy import Value
from xfbench.worker import watch as worker_watch
from xfbench.worker.distributed import host_address, path_for_rank
from xfbench.workloads import Workload

_REPLY = "reply.json"
PROGRAM_CACHE = "program_cache"  # a field of jobs
# The start of command.sh for a launch in a Slurm job. The field separator is a line end, so that
# the variables of the job may contain spaces.
_RERUN_IN_ALLOCATION = """\
# It must run inside a Slurm allocation, for example: {command}
if [ -z "$SLURM_JOB_ID" ]; then
    echo "run it inside a Slurm allocation, for example: {command}" >&2
    exit 1
fi
IFS='
'
set -f
"""
# The first lines of a helper that runs on any node of the launch.
_FILL_ADDRESS = """\
from xfbench.worker.distributed import replace_address_placeholders_in_env
replace_address_placeholders_in_env(remote=True)
"""
_STDERR_BYTES = 100_000  # the end of standard error that is searched for the cause of a crash
# Number of polls for the final state of a Slurm job, and seconds between them. Together they take
# longer than Slurm waits between SIGTERM and SIGKILL.
_LOOKS, _LOOK_SECONDS = 60, 1.0


def build_job_document(
    action: str, request: Request, workload: Workload, **more: Any
) -> dict[str, Any]:
    """Build the JSON document of a worker's job.

    `action` is what the worker does, such as "train". `more` has the fields that only this action
    needs.
    """
    return {
        "schema": "xfbench.job/1",
        "action": action,
        "request": request.model_dump(mode="json"),
        "workload": workload.to_json(),
        "remote": _may_use_other_nodes(request),
        "strategy_options": resolve_strategy_options(request),
        "reserved_cores": sites.load_site(request.site).reserved_cores_here(),
        "share_gpus": sites.load_site(request.site).share_gpus,
        **_build_program_cache_fields(request),
        **more,
    }


def _build_program_cache_fields(request: Request) -> dict[str, str]:
    """Return the job's field `program_cache`: the folder of programs of all frameworks.

    The result is empty if the framework keeps no compiled programs on the device.
    """
    keeps_programs = adapter.load(request.framework, request.revision).keeps_programs
    if request.device not in keeps_programs:
        return {}
    return {PROGRAM_CACHE: str(environment.compiled_programs_folder())}


def resolve_strategy_options(request: Request) -> dict[str, Value]:
    """Return all options of the strategy. Options that the request lacks have defaults."""
    framework_adapter = adapter.load(request.framework, request.revision)
    strategy = framework_adapter.find_or_build_strategy(request.strategy)
    return strategy.options_with_defaults(dict(request.strategy_options), request.device)


def _may_use_other_nodes(request: Request) -> bool:
    """Return whether this process and the ranks may run on more than one node."""
    hosts = sites.load_site(request.site).hosts
    return request.launcher == "slurm" or request.nodes > 1 or bool(hosts)


def run_job(
    job: dict[str, Any],
    request: Request,
    framework_adapter: adapter.Adapter,
    framework_environment: Environment,
    folder: Path,
    time_limit: float,
) -> dict[str, Any]:
    """Run one job in `folder` and return its reply. Without a reply, return a status and a reason.

    `time_limit` is in seconds. Afterwards `folder` contains these files:

    - request.json and worker.pyz: the job and the worker.
    - command.json and command.sh: the commands.
    - stdout, stderr and reply.json (if the worker wrote a reply). The files of further ranks are
      stdout.1, stderr.1, reply.1.json and so on.
    """
    job_digest = write_job_files(job, folder)
    try:
        return _run_and_read_reply(
            job_digest, request, framework_adapter, framework_environment, folder, time_limit
        )
    finally:  # the worker may have died before it removed its checkpoints and links
        for link in folder.glob("programs.*"):
            link.unlink()
        if "checkpoint_folder" in job:
            shutil.rmtree(folder / job["checkpoint_folder"], ignore_errors=True)


def build_checkpoint_fields(request: Request, parent: Path | None) -> dict[str, str]:
    """Return the job's field `checkpoint_folder`: the folder of temporary checkpoints.

    The folder is a new folder in `parent`, or in the run folder if `parent` is None. If the request
    takes no checkpoints, the result is empty.
    """
    if not request.checkpoints:
        return {}
    if parent is None:
        return {"checkpoint_folder": "checkpoint"}
    return {"checkpoint_folder": str(parent.absolute() / f"xfbench-{uuid.uuid4().hex[:12]}")}


def _run_and_read_reply(
    job_digest: str,
    request: Request,
    framework_adapter: adapter.Adapter,
    framework_environment: Environment,
    folder: Path,
    time_limit: float,
) -> dict[str, Any]:
    try:
        start, helpers = build_start_and_helpers(
            request, framework_adapter, framework_environment, folder
        )
    except UnavailableError as error:
        return {"status": "unavailable", "reason": redact_hosts(str(error), request.site)}
    _write_commands_for_manual_rerun([*helpers, *start.commands], folder, request)
    oom_kills_before = memory.count_oom_kills_since_boot()
    try:
        outcome = _run_start_and_helpers(start, helpers, request, folder, time_limit)
    except processes.CommandError as error:
        return {"status": "unavailable", "reason": redact_hosts(str(error), request.site)}
    for file in (*folder.glob("stdout*"), *folder.glob("stderr*")):
        safe_read.remove_middle(file)
    if outcome.status and outcome.rank >= request.ranks:
        words = f"a helper of strategy {request.strategy}: {outcome}"
        return {
            "status": "crashed",
            "reason": f"{words}{_format_last_stderr_line(folder, outcome.rank, request)}",
        }
    if outcome.status and (slurm_end := _wait_for_status_if_slurm_ended_ranks(folder)):
        return {"status": slurm_end[0], "reason": slurm_end[1]}
    if (
        start.watched
        and outcome.status
        and not path_for_rank(folder / "stdout", outcome.rank).exists()
    ):
        last_line = _format_last_stderr_line(folder, "start", request)
        return {"status": "crashed", "reason": f"no rank was started: {outcome}{last_line}"}
    answer = read_and_merge_replies(folder, job_digest, request, outcome, time_limit)
    if answer["status"] == "crashed":
        stderr = safe_read.read_tail(path_for_rank(folder / "stderr", outcome.rank), _STDERR_BYTES)
        reason = memory.out_of_memory_reason(
            outcome,
            redact_hosts(stderr, request.site),
            request.memory_limit,
            memory.count_oom_kills_since_boot() - oom_kills_before,
        )
        if reason:
            return {"status": "failed", "reason": _prefix_rank(reason, outcome.rank, request)}
    return answer


def write_job_files(job: dict[str, Any], folder: Path) -> str:
    """Write request.json (the job) and worker.pyz (the worker's program) to `folder`.

    Return the digest of request.json. A reply must name this digest.
    """
    content = json.dumps(job, indent=1).encode()
    write_file(folder / "request.json", content)
    archive = worker_archive.ensure_worker_archive(
        job["request"]["framework"], job["request"].get("revision")
    )
    _link_or_copy(archive, folder / "worker.pyz")
    return digests.of_bytes(content)


def read_and_merge_replies(
    folder: Path, job_digest: str, request: Request, outcome: processes.Outcome, time_limit: float
) -> dict[str, Any]:
    """Return the merged replies of the ranks in `folder`, or a status and a reason.

    - `job_digest`: the digest of the job. A reply to another job counts as a failure.
    - `outcome`: how the ranks ended.
    - `time_limit`: the time limit of the ranks in seconds. It is only mentioned in the reason.
    """
    if outcome.timed_out:
        limit = f"no reply within the time limit of {time_limit:g} s"
        return {"status": "timed_out", "reason": f"{limit}: raise it with --time-limit"}
    # The rank that failed first knows the cause. The other ranks were ended after its failure.
    order = sorted(range(request.ranks), key=lambda rank: rank != outcome.rank)
    answers = {}
    for rank in order:
        answer = _read_rank_reply(folder, rank, job_digest, outcome, request)
        if answer["status"] != "ok":
            reason = redact_hosts(answer["reason"] or "no reason given", request.site)
            return {**answer, "reason": _prefix_rank(reason, rank, request)}
        answers[rank] = answer
    try:
        framework_adapter = adapter.load(request.framework, request.revision)
        strategy = framework_adapter.find_or_build_strategy(request.strategy)
        return ranks.merge_replies(
            [answers[rank] for rank in range(request.ranks)],
            request.nodes,
            asynchronous=strategy.asynchronous,
        )
    except worker_reply.WRONG as error:
        return {"status": "crashed", "reason": f"the ranks' replies cannot be merged: {error}"}


def _prefix_rank(reason: str, rank: int, request: Request) -> str:
    """Return the reason with the number of the rank, if there are several ranks."""
    return f"rank {rank} of {request.ranks}: {reason}" if request.ranks > 1 else reason


def build_start_and_helpers(
    request: Request,
    framework_adapter: adapter.Adapter,
    framework_environment: Environment,
    folder: Path,
) -> tuple[Start, list[processes.Command]]:
    """Return the commands that start the ranks in `folder`, and the commands of the helpers.

    Helpers are processes of the strategy that train nothing, such as parameter servers. Raises
    UnavailableError if a program or library that the commands need is missing.
    """
    framework_environment = probing.prepare_probe_environment(
        request, framework_adapter, framework_environment, folder
    )
    variables = framework_environment.variables(framework_adapter, request.kernel, request.threads)
    base = processes.Command(
        (str(framework_environment.interpreter), "worker.pyz", "request.json", "reply.json"),
        {
            **variables,
            **allocators.ensure_library_preload_variables(
                request.allocator, variables.get("LD_PRELOAD", "")
            ),
            **probing.probe_variables(request),
        },
        folder,
    )
    base, helpers = _build_rank_and_helper_commands(base, framework_adapter, request)
    return starting.build_start(base, request, framework_adapter, framework_environment), helpers


def _run_start_and_helpers(
    start: Start,
    helpers: Sequence[processes.Command],
    request: Request,
    folder: Path,
    time_limit: float,
) -> processes.Outcome:
    """Run the start commands and the helpers until all ranks have ended or a process has failed."""
    numbers: list[int | str] = list(range(request.ranks))
    with ExitStack() as stack:
        watch = None
        if start.watched:
            host = host_address(_may_use_other_nodes(request))
            watch = stack.enter_context(Watch(request.ranks, request.nodes, host))
        if watch:  # watched ranks write their output files themselves
            watch.write_address(folder)
            stack.callback((folder / worker_watch.FILE_NAME).unlink, missing_ok=True)
            in_file = _reads_address_from_file(request.revision)
            address = worker_watch.FILE_NAME if in_file else watch.address
            start = start.with_variable(worker_watch.ADDRESS_FILE, address)
            numbers = ["start"]
        numbers += range(request.ranks, request.ranks + len(helpers))
        outcome = processes.run(
            start.commands,
            helpers=helpers,
            stdout=[_output_path(folder, "stdout", number) for number in numbers],
            stderr=[_output_path(folder, "stderr", number) for number in numbers],
            time_limit=time_limit,
            alarm=watch.alarm if watch else None,
        )
        if not watch or outcome.timed_out:
            return outcome
        number = numbers[outcome.rank]
        if isinstance(number, int) and outcome.status:  # a helper
            return replace(outcome, rank=number)
        return (watch.wait_for_failure() if outcome.status else watch.failure) or outcome


def _reads_address_from_file(revision: str | None) -> bool:
    """Return whether the worker reads the address of the watch from a file.

    Workers of earlier revisions need the address on the command line.
    """
    if revision is None:
        return True
    code = worker_archive.read_worker_files(revision).values()
    return any(b"ADDRESS_FILE" in content for content in code)


def _output_path(folder: Path, stream_name: str, number: int | str) -> Path:
    """Return the path of the output file of one process.

    - `stream_name`: "stdout" or "stderr".
    - `number`: the number of a rank or a helper. The first helper's number is the number of ranks.
      "start": the command that starts all ranks.
    """
    return (
        folder / f"{stream_name}.start"
        if number == "start"
        else path_for_rank(folder / stream_name, int(number))
    )


def _build_rank_and_helper_commands(
    base: processes.Command, framework_adapter: adapter.Adapter, request: Request
) -> tuple[processes.Command, list[processes.Command]]:
    """Return `base` with the strategy's variables, and the commands of the strategy's helpers."""
    strategy = framework_adapter.together.get(request.strategy)
    if strategy is None:
        return base, []
    host = host_address(_may_use_other_nodes(request))
    with socket.socket() as probe:
        probe.bind((host, 0))
        replacements = {"{ranks}": str(request.ranks), "{host}": host}
        replacements["{port}"] = str(probe.getsockname()[1])
    strategy_options = resolve_strategy_options(request)
    replacements |= {f"{{{name}}}": str(value) for name, value in strategy_options.items()}

    def fill_placeholders(variables: Mapping[str, str], **more: str) -> dict[str, str]:
        filled_variables = dict(variables)
        for name, value in {**replacements, **more}.items():
            filled_variables = {
                key: text.replace(name, value) for key, text in filled_variables.items()
            }
        return filled_variables

    can_choose_node = starting.can_choose_node(request)
    helpers = []
    for index, variables, is_counted in strategy.helper_processes(strategy_options):
        on_node = is_counted and can_choose_node
        helper_variables = {
            "serve": strategy.serve or f"import {framework_adapter.module}",
            **({"PYTHONPATH": "worker.pyz"} if on_node else {}),
            **variables,
        }
        helper_variables = fill_placeholders(
            {**strategy.variables, **helper_variables},
            **({} if on_node else {"{address}": host}),
            **{"{number}": str(index)},
        )
        code = (_FILL_ADDRESS if on_node else "") + helper_variables.pop("serve")
        helper = replace(base, argv=(base.argv[0], "-c", code)).with_environment(helper_variables)
        if on_node:
            helper = starting.build_start_on_node(helper, request, index % request.nodes)
        helpers.append(helper)
    return base.with_environment(fill_placeholders(strategy.variables)), helpers


def _wait_for_status_if_slurm_ended_ranks(folder: Path) -> tuple[str, str] | None:
    """Return the status and reason if Slurm ended the ranks, else None.

    While a job is ending, Slurm does not report why it ends. This function then waits up to a
    minute for the reason. It also waits if srun starts no step after the end time of the job. While
    it waits, Slurm may also end this process.
    """
    stderr_path = _output_path(folder, "stderr", "start")
    number = os.environ.get("SLURM_JOB_ID")
    if number is None or not stderr_path.exists():
        return None
    stderr = safe_read.read_tail(stderr_path, _STDERR_BYTES)
    is_after_end = slurm.reports_ended_job(stderr)
    state = ""
    if slurm.reports_out_of_memory(stderr):
        return slurm.FINAL_STATES["OUT_OF_MEMORY"]
    for _ in range(_LOOKS):
        try:
            state = slurm.query_job_state(number).state
        except processes.CommandError:
            return None
        if state != "COMPLETING" and not (is_after_end and state == "RUNNING"):
            return slurm.FINAL_STATES.get(state)
        time.sleep(_LOOK_SECONDS)
    return slurm.FINAL_STATES["TIMEOUT"] if is_after_end and state == "RUNNING" else None


def _read_rank_reply(
    folder: Path, rank: int, job_digest: str, outcome: processes.Outcome, request: Request
) -> dict[str, Any]:
    """Return the rank's reply to the job with this digest.

    If there is no valid reply, return a status and a reason.
    """
    last_line = _format_last_stderr_line(folder, rank, request)
    try:
        answer = worker_reply.read_reply(path_for_rank(folder / "reply.json", rank), job_digest)
    except worker_reply.ForeignError as error:
        return {"status": "crashed", "reason": str(error)}
    except worker_reply.ReplyError as error:
        last_line_if_missing = last_line if isinstance(error, worker_reply.MissingError) else ""
        return {"status": "crashed", "reason": f"{error}: {outcome}{last_line_if_missing}"}
    if outcome.status != 0 and outcome.rank == rank and answer["status"] == "ok":
        return {"status": "crashed", "reason": f"after its reply {outcome}{last_line}"}
    return answer


def _link_or_copy(archive: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(archive)
    except OSError:  # the cache is on another file system
        copy_content(archive, target, permissions=0o666)


def _write_commands_for_manual_rerun(
    commands: Sequence[processes.Command], folder: Path, request: Request
) -> None:
    """Write the commands to command.json, and to command.sh for running them again by hand."""
    documents = [
        {"argv": command.argv, "environment": dict(command.environment)} for command in commands
    ]
    document = documents[0] if len(documents) == 1 else documents
    write_file(folder / "command.json", json.dumps(document, indent=1))
    lines = [_build_rerun_line(command) for command in commands]
    lines = [f"{ln[: -len(_REPLY)]}reply-again.json" if ln.endswith(_REPLY) else ln for ln in lines]
    fresh = "rm -f meeting meeting.*\n" if request.ranks > 1 else ""
    last = f"{fresh}exec {lines[0]}"
    if len(lines) > 1:
        last = " &\n".join(["rm -f meeting meeting.*", *lines, "wait"]).replace(" &", "", 1)
    preamble = ""
    if any(_is_in_slurm_job(command) for command in commands):
        site = sites.load_site(request.site)
        allocation = slurm.allocation_command(
            request.nodes, request.ranks, request.threads, site.gpu_options_for(request.device)
        )
        preamble = _RERUN_IN_ALLOCATION.replace("{command}", f"{allocation} sh command.sh")
    script = (
        "#!/bin/sh\n# Runs this launch again; the reply goes to reply-again.json.\n"
        f'{preamble}cd "$(dirname "$0")" || exit\n{last}\n'
    )
    write_file(folder / "command.sh", script, permissions=0o777)


def _is_in_slurm_job(command: processes.Command) -> bool:
    return "SLURM_JOB_ID" in command.environment


def _build_rerun_line(command: processes.Command) -> str:
    """Return a shell line that runs the command again.

    A command in a Slurm job gets the variables of the job in which the line runs, because the job
    of the launch has ended by then.
    """
    if not _is_in_slurm_job(command):
        return command.to_shell_line()
    variables = {
        name: value
        for name, value in command.environment.items()
        if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }
    line = replace(command, environment=variables).to_shell_line()
    return line.replace("env -i ", "env -i $(env | grep ^SLURM_) ", 1)


def _format_last_stderr_line(folder: Path, number: int | str, request: Request) -> str:
    """Return ": " and the last line of standard error, with names redacted.

    If standard error is empty, return an empty string.
    """
    lines = safe_read.read_tail(_output_path(folder, "stderr", number), 2000).split("\n")
    words = [line.strip(" -") for line in lines if line.strip(" -")]
    if not words:
        return ""
    return f": {redact_hosts(words[-1][:200], request.site)}"


def redact_hosts(text: str, site: str | None = None) -> str:
    """Return the text with "a node" for each host of the launch, with its domain.

    - `site`: name or TOML file of the site whose hosts start ranks.

    The hosts are this one, those of the scheduler's allocation and those of the site. Other private
    names are removed when the record is made (`xfbench/model/privacy.py`).
    """
    hosts = {platform.node(), *slurm.allocation_hosts(), *private_names.list_allocated_hosts()}
    with suppress(UsageError):  # a bundle's site may be unknown here
        hosts.update(host.partition(":")[0] for host in sites.load_site(site).hosts)
    return private_names.replace_hosts(text, hosts, "a node")
