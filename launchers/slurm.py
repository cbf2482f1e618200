"""The Slurm launcher: srun inside an allocation, and the job script that a login node submits.

In the job script, user input is quoted for the shell. Slurm itself reads the `#SBATCH` lines, each
with one option. An option that Slurm cannot read, such as one with a line end, is refused.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xfbench.base import tool_output
from xfbench.base.errors import UsageError
from xfbench.base.process_variables import Purpose
from xfbench.base.processes import Command, CommandError, output
from xfbench.launchers.resources import Resources, wrap_in_start_and_env_commands

_TIMEOUT_S = 60.0  # time limit of one Slurm command


def build_commands(
    command: Command, resources: Resources, mpi_plugin: str = "none"
) -> list[Command]:
    """Return a list of one srun command, which starts all ranks in this allocation.

    `mpi_plugin` is the value of srun's option `--mpi`.
    """
    start_words = (
        "srun",
        f"--nodes={resources.nodes}",
        f"--ntasks={resources.ranks}",
        f"--ntasks-per-node={resources.ranks_per_node}",
        f"--cpus-per-task={resources.threads}",
        "--distribution=block",
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        "--overlap",
        f"--mpi={mpi_plugin}",
        *resources.options,
    )
    return [wrap_in_start_and_env_commands(start_words, command, resources)]


def allocation_command(nodes: int, ranks: int, threads: int, options: Sequence[str] = ()) -> str:
    """Return the words of `salloc` that ask for an allocation for these ranks, with `options`."""
    resources = Resources(ranks, nodes, threads)
    words = " ".join(("", *resources.fill_placeholders(options)))
    per_node = resources.ranks_per_node
    return f"salloc -N{nodes} --ntasks-per-node={per_node} --cpus-per-task={threads}{words}"


@dataclass(frozen=True)
class Job:
    """The content of a job script. The script tells Slurm not to requeue the job.

    - `name`: name of the job. If the queue already has a job with this name, xfbench does not
      submit another one.
    - `argv`: command that the script runs.
    - `folder`: working folder of the job. Slurm writes the output files of the job to it.
    - `threads`: number of cores per rank.
    - `minutes`: time limit.
    - `queue`, `account`: "" selects the default of Slurm.
    - `options`: additional options of sbatch.
    - `variables`: names and values of the variables to set before `argv` runs.
    """

    name: str
    argv: tuple[str, ...]
    folder: Path
    nodes: int
    ranks_per_node: int
    threads: int
    minutes: int
    queue: str = ""
    account: str = ""
    options: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def job_script(job: Job) -> str:
    """Return the text of the job script.

    The last step of the script writes the exit status of `job.argv` to the file `job.status`.
    Raises UsageError if an `#SBATCH` option contains a character that `_quote_sbatch_option`
    refuses.
    """
    options = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.ranks_per_node}",
        f"--cpus-per-task={job.threads}",
        f"--time={job.minutes}",
        f"--chdir={job.folder}",
        "--output=job.stdout",
        "--error=job.stderr",
        "--no-requeue",
        *([f"--partition={job.queue}"] if job.queue else []),
        *([f"--account={job.account}"] if job.account else []),
        *job.options,
    ]
    lines = [f"#SBATCH {_quote_sbatch_option(option)}" for option in options]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in job.variables]
    return "\n".join(
        [
            "#!/bin/bash",
            "# Submitted by xfbench; job.json describes what it measures.",
            *lines,
            shlex.join(job.argv),
            "status=$?",
            'echo "$status" > job.status.partial && mv job.status.partial job.status',
            'exit "$status"',
            "",
        ]
    )


def _quote_sbatch_option(option: str) -> str:
    """Return the option for an `#SBATCH` line, in double quotes if it contains a space.

    Raises UsageError if the option contains a quote, a backslash, a number sign or a character that
    cannot be printed.
    """
    if not option.isprintable() or any(character in option for character in "\"'\\#"):
        raise UsageError(
            f"{option!r} cannot be written to a job script: leave out quotes, backslashes, number "
            "signs and line ends"
        )
    return f'"{option}"' if " " in option else option


# By Slurm's state of an ended job: the status and the reason for launches without a record.
FINAL_STATES = {
    "BOOT_FAIL": ("crashed", "a node did not boot"),
    "CANCELLED": ("failed", "the job was cancelled"),
    "DEADLINE": ("timed_out", "the job could not end before its deadline"),
    "FAILED": ("crashed", "the job's script failed"),
    "NODE_FAIL": ("crashed", "a node of the job failed"),
    "OUT_OF_MEMORY": (
        "failed",
        "out of memory: the job used more memory than it may on a node; use a smaller batch, or "
        "ask for more with --mem in a site's script_options",
    ),
    "PREEMPTED": ("failed", "the job was preempted by one of higher priority"),
    "REVOKED": ("failed", "another cluster of the federation took the job"),
    "TIMEOUT": ("timed_out", "the job reached its time limit: raise it with --job-time"),
}
# Reasons why a pending job never starts, with what to do. The request of such a job is wrong.
PERMANENT_REASONS = {
    "AccountNotAllowed": "the queue is not open to this account: name another with --account",
    "InvalidAccount": "the account does not exist: name another with --account",
    "InvalidQOS": "the job's quality of service (QOS) is not available",
    "PartitionTimeLimit": "the time limit is too long for this queue: shorten it with --job-time",
    "AssocMaxWallDurationPerJobLimit": "the account allows less time: shorten it with --job-time",
    "QOSMaxWallDurationPerJobLimit": "the QOS allows less time: shorten it with --job-time",
    "QOSNotAllowed": "the queue does not allow the job's quality of service (QOS)",
}
# Reasons why a job may wait for ever, with what is probably wrong.
SUSPICIOUS_REASONS = {
    "PartitionNodeLimit": "the queue has fewer nodes, or some are down",
    "PartitionConfig": "the queue has no such nodes: fewer threads or ranks per node may fit",
    "AssocMaxCpuPerJobLimit": "the account allows fewer CPUs: use fewer threads or ranks",
    "AssocMaxNodePerJobLimit": "the account allows fewer nodes: use a smaller --nodes",
    "QOSMaxCpuPerJobLimit": "the QOS allows fewer CPUs: use fewer threads or ranks",
    "QOSMaxNodePerJobLimit": "the QOS allows fewer nodes: use a smaller --nodes",
    "DependencyNeverSatisfied": "the job waits for a failed one: see script_options",
    "JobHeldAdmin": "an administrator holds the job: ask why",
    "JobHeldUser": "the job is held: release it with scontrol release",
    "launch_failed_requeued_held": "a node failed to start it: see scontrol release",
    "BadConstraints": "no node has what the job asks for: see script_options of the site",
}
_JOB_NUMBER = r"[0-9]+([_+]\S+)?"
_QUEUE_STATES = "PD|CF|R|CG|S|PENDING|CONFIGURING|RUNNING|COMPLETING|SUSPENDED"
_OUT_OF_MEMORY = re.compile(
    r"^(slurmstepd|srun)\b.* (memory limit|out of memory|oom.kill)", re.I | re.M
)


@dataclass(frozen=True)
class JobState:
    """The state of a job and the reason for this state, as reported by Slurm.

    `reason` is "" if Slurm gives no reason. Both fields are "" if Slurm has forgotten the job.
    """

    state: str = ""
    reason: str = ""


def parse_job_state(scontrol_line: str) -> JobState:
    """Parse the line that `scontrol -o show job` prints for a job."""
    fields = dict(word.partition("=")[::2] for word in reversed(scontrol_line.split()))
    reason = fields.get("Reason", "")
    return JobState(fields.get("JobState", ""), "" if reason == "None" else reason)


def parse_job_listing(text: str, job_number: str) -> JobState:
    """Parse what `scontrol -o show job NUMBER` printed, which may contain other lines.

    If no line describes the job, the state is "" and the reason has what was printed.
    """
    one_line_per_job = re.sub(r"\n[ \t]+", " ", text)  # some wrappers drop the option -o
    lines = tool_output.find_matching_lines(one_line_per_job, r"(.*\s)?JobState=.*")
    for line in lines:
        number = re.match(r"(?:.*?\s)?JobId=(\d+)", line)
        if number is None or number[1] == job_number:
            return parse_job_state(line)
    return JobState(reason=f"scontrol printed {tool_output.quote_output(text)}" if text else "")


def parse_job_number(text: str) -> str:
    """Return the number in the output of sbatch: N, N;CLUSTER or Submitted batch job N.

    Raises CommandError if no line, or lines with different numbers, have one of these forms.
    """
    lines = tool_output.find_matching_lines(
        text, r"((\S+: )?Submitted batch job )?[1-9][0-9]*(;\S+)?( on cluster \S+)?"
    )
    numbers = {match[0] for line in lines if (match := re.search("[0-9]+", line))}
    if len(numbers) != 1:
        raise CommandError(
            "sbatch printed no job number, or several; the job may be in the queue (see squeue): "
            f"{tool_output.quote_output(text)}"
        )
    return numbers.pop()


def parse_queue(text: str) -> str | None:
    """Return the first job number in the output of squeue, or None if no line is one.

    A wrapper may have its own format: a line with a number and the state of the job.
    """
    for form in (_JOB_NUMBER, rf"{_JOB_NUMBER}\s(.*\s)?({_QUEUE_STATES})(\s.*)?"):
        if lines := tool_output.find_matching_lines(text, form):
            return lines[0].split()[0]
    return None


def reports_out_of_memory(text: str) -> bool:
    """Return whether `text` says that Slurm killed processes for using too much memory.

    `text` is the output of a job or of its ranks. The state of the job is not enough:

    - Without cgroups, the state never shows such a kill.
    - With cgroups, the state does not show the kill if Slurm killed only ranks.
    """
    return bool(_OUT_OF_MEMORY.search(text))


def reports_ended_job(text: str) -> bool:
    """Return whether srun says in `text` that it starts no step because the job has ended.

    Slurm refuses steps from the end time of the job on, and ends the job itself up to 30 s later.
    """
    return "Job/step already completing or completed" in text


def submit_job_script(script_path: Path, after: str = "") -> str:
    """Submit the job script and return Slurm's number of the job.

    `after`: number of a job that has to end before; empty: none. Raises CommandError if sbatch
    fails.
    """
    dependency = [f"--dependency=afterany:{after}"] if after else []
    argv = ["sbatch", "--parsable", *dependency, str(script_path)]
    printed = output(argv, purpose=Purpose.SUBMISSION, timeout=_TIMEOUT_S, new_session=True)
    return parse_job_number(printed)


def describe_rejection(error: CommandError) -> str:
    """Return sbatch's own words of an error in one line, without what a site prints beside them.

    If no line is sbatch's, return the beginning of all that was printed.
    """
    message = str(error).removeprefix("sbatch failed: ")
    for form in (r"sbatch: (error|fatal): .*", r"sbatch: .*"):
        if lines := tool_output.find_matching_lines(message, form):
            return "; ".join(dict.fromkeys(re.sub(r"^sbatch: (\w+: )?", "", ln) for ln in lines))
    return tool_output.quote_output(message) if "\n" in message else message


def find_job_number(job_name: str) -> str | None:
    """Return the number of this user's pending or running job with the name `job_name`.

    Return None if there is no such job. Raises CommandError if squeue fails.
    """
    listing = output(
        ["squeue", "--noheader", f"--name={job_name}", f"--user={os.getuid()}", "--format=%i"],
        purpose=Purpose.SLURM,
        timeout=_TIMEOUT_S,
    )
    return parse_queue(listing)


def find_unreachable_reason() -> str | None:
    """Ask Slurm for this user's jobs. Return why it does not answer, in one line, else None."""
    try:
        output(
            ["squeue", "--noheader", f"--user={os.getuid()}", "--format=%i"],
            purpose=Purpose.SLURM,
            timeout=_TIMEOUT_S,
        )
    except CommandError as error:
        message = str(error).removeprefix("squeue failed: ")
        # The last line has the consequence of the others, such as of an unknown host.
        if lines := tool_output.find_matching_lines(message, r"[a-z_]+: (error|fatal): .*"):
            return re.sub(r"^[a-z_]+: (error|fatal): ", "", lines[-1])
        return tool_output.quote_output(message) if "\n" in message else message
    return None


def query_job_state(job_number: str) -> JobState:
    """Return the state of the job, or an empty `JobState` if Slurm has forgotten the job.

    Raises CommandError if Slurm does not answer.
    """
    try:
        listing = output(
            ["scontrol", "-o", "show", "job", job_number],
            purpose=Purpose.SLURM,
            timeout=_TIMEOUT_S,
        )
        return parse_job_listing(listing, job_number)
    except CommandError as error:
        if "Invalid job id" in str(error):
            return JobState()
        raise


def cancel_job(job_number: str) -> None:
    """Cancel the job, whether it is pending or running. Raises CommandError if scancel fails."""
    output(["scancel", job_number], purpose=Purpose.SLURM, timeout=_TIMEOUT_S)


def allocation_hosts() -> list[str]:
    """Return the names of the nodes in the current allocation.

    The list is empty outside an allocation, or if scontrol fails.
    """
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        return []
    try:
        listing = output(
            ["scontrol", "show", "hostnames", nodes], purpose=Purpose.SLURM, timeout=_TIMEOUT_S
        )
        return tool_output.find_matching_lines(listing, r"[A-Za-z0-9][\w.-]*")
    except CommandError:
        return []
