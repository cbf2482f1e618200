"""Ranks under Slurm: srun inside an allocation, and the job script that a login node submits.

Whatever a person typed is quoted wherever a shell reads it, and refused where Slurm would:
`#SBATCH` lines are read by Slurm itself, a word each, so that none may hold a line's end.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from xfbench.base.errors import UsageError
from xfbench.base.processes import Command, CommandError, output
from xfbench.launchers.resources import Resources, started

_TIMEOUT = 60.0  # seconds, for a word with Slurm


def commands(command: Command, resources: Resources, plugin: str = "none") -> list[Command]:
    """The srun that starts all ranks inside this allocation; `plugin` is its `--mpi`."""
    words = (
        "srun",
        f"--nodes={resources.nodes}",
        f"--ntasks={resources.ranks}",
        f"--ntasks-per-node={resources.per_node}",
        f"--cpus-per-task={resources.threads}",
        "--distribution=block",
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        "--overlap",
        f"--mpi={plugin}",
        *resources.options,
    )
    return [started(words, command, resources)]


@dataclass(frozen=True)
class Job:
    """What a job script asks for. Slurm sends no mail and starts nothing twice.

    `name` identifies it: a request submitted twice is one job. `variables` are set before
    `argv` runs; `folder` is where it runs and writes.
    """

    name: str
    argv: tuple[str, ...]
    folder: Path
    nodes: int
    per_node: int
    threads: int
    minutes: int
    queue: str = ""
    account: str = ""
    options: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def script(job: Job) -> str:
    """The job script. Its last act is to leave its exit status in `job.status`.

    Raises UsageError for a value that cannot stand in it.
    """
    options = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.per_node}",
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
    lines = [f"#SBATCH {_directive(option)}" for option in options]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in job.variables]
    return "\n".join(
        [
            "#!/bin/bash",
            "# Submitted by xfbench; job.json says what it is to measure.",
            *lines,
            shlex.join(job.argv),
            "status=$?",
            'echo "$status" > job.status.partial && mv job.status.partial job.status',
            'exit "$status"',
            "",
        ]
    )


def _directive(option: str) -> str:
    """An option as Slurm's own reader takes it: in double quotes where it has a space.

    Raises UsageError where no quoting helps.
    """
    if not option.isprintable() or any(mark in option for mark in "\"'\\#"):
        raise UsageError(
            f"{option!r} cannot stand in a job script: leave out quotes, backslashes, number "
            "signs and line ends"
        )
    return f'"{option}"' if " " in option else option


STATES = {
    "BOOT_FAIL": ("crashed", "a node did not boot"),
    "CANCELLED": ("failed", "the job was cancelled"),
    "DEADLINE": ("timed_out", "the job could not end before its deadline"),
    "FAILED": ("crashed", "the job's script failed"),
    "NODE_FAIL": ("crashed", "a node of the job failed"),
    "OUT_OF_MEMORY": (
        "failed",
        "out of memory: it used more memory than its job may of a node; have a smaller batch, or "
        "ask for more with --mem in a site's script_options",
    ),
    "PREEMPTED": ("failed", "the job was preempted by one that goes before it"),
    "TIMEOUT": ("timed_out", "the job reached its time limit: raise it with --minutes"),
}
# Why a job that waits would do so for ever: what is wrong is in what it asks for.
NEVER = {
    "AccountNotAllowed": "the queue is not for this account: name another with --account",
    "InvalidAccount": "there is no such account: name another with --account",
    "InvalidQOS": "its quality of service is not to be had",
    "PartitionTimeLimit": "jobs in this queue may not take so long: shorten it with --minutes",
    "QOSNotAllowed": "the queue is not for its quality of service",
}
_MEMORY = re.compile(r"^(slurmstepd|srun)\b.* (memory limit|out of memory|oom.kill)", re.I | re.M)


@dataclass(frozen=True)
class Seen:
    """A job's state, and why it waits, in Slurm's words; both empty where Slurm has forgotten."""

    state: str = ""
    reason: str = ""


def seen(listing: str) -> Seen:
    """What `scontrol -o show job`'s line says."""
    fields = dict(word.partition("=")[::2] for word in reversed(listing.split()))
    reason = fields.get("Reason", "")
    return Seen(fields.get("JobState", ""), "" if reason == "None" else reason)


def out_of_memory(said: str) -> bool:
    """Whether Slurm says, among what a job or its ranks wrote, that it ended them for memory.

    Without cgroups that is in no job's state; with them, not in that of a job whose ranks it was.
    """
    return bool(_MEMORY.search(said))


def submit(path: Path) -> str:
    """Submit the script at `path`; the job's number. Raises CommandError, with Slurm's words."""
    words = ["sbatch", "--parsable", str(path)]
    return output(words, timeout=_TIMEOUT, new_session=True).strip().partition(";")[0]


def find(name: str) -> str | None:
    """The number of this user's job of that name which waits or runs, if there is one."""
    listing = output(
        ["squeue", "--noheader", f"--name={name}", f"--user={os.getuid()}", "--format=%i"],
        timeout=_TIMEOUT,
    )
    return next(iter(listing.split()), None)


def look(number: str) -> Seen:
    """How the job is. Raises CommandError where Slurm does not answer."""
    try:
        return seen(output(["scontrol", "-o", "show", "job", number], timeout=_TIMEOUT))
    except CommandError as error:
        if "Invalid job id" in str(error):
            return Seen()
        raise


def cancel(number: str) -> None:
    """Take the job out of the queue, or end it."""
    output(["scancel", number], timeout=_TIMEOUT)


def hosts() -> list[str]:
    """The nodes of the allocation that this process is in; none outside of one."""
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        return []
    try:
        return output(["scontrol", "show", "hostnames", nodes], timeout=_TIMEOUT).split()
    except CommandError:
        return []
