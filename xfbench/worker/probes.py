"""Probes, which find out what features of an HPC system a framework uses while it trains.

A probe wraps the trainer that the training loop calls. It answers "yes", "no" or "not here" for
each feature, with a line of evidence. "not here" means that this machine lacks what the probe
needs. The driver combines the answers of several ranks.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from xfbench.worker import checkpoint, observe, placement

Answer = Dict[str, str]
# Delay of the signal in seconds: shorter than a step, so that the signal arrives during the step.
_SIGNAL_AFTER, _SIGNALLED_STEP = 0.001, 3
_TIMEOUT_SECONDS = 30
_LAUNCHER_VARIABLES = (
    "PMIX_",
    "PMI_",
    "OMPI_COMM_WORLD_",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "XFBENCH_RANK",
)
_FAST_NETWORK_LIBRARIES = ("ibverbs", "rdmacm", "fabric", "libucp", "libuct", "psm2", "nccl")
_MEGABYTE = 10**6


def build_answer(feature: str, supported: str, evidence: str) -> Answer:
    """Return an answer as it is stored in a record.

    - `supported`: "yes", "no" or "not here".
    - `evidence`: one line from the trial.
    """
    return {"feature": feature, "supported": supported, "evidence": evidence}


class ProbeRun:
    """The probes of one launch.

    - `build`: the adapter's function that builds the trainer.
    - `kind`: the request's `probe`, such as "process" or "huge_pages".
    """

    def __init__(self, build: Callable[..., Any], kind: str) -> None:
        self._build, self.kind = build, kind
        self.trainer: Any = None

    def build(self, network: Any, solver: Any, options: Any, group: Any) -> Any:
        """Measure this process's memory, build the adapter's trainer, and wrap the trainer."""
        if self.kind == "process":
            self.target, self.refused = _prefer_cpuless_or_last_numa_node()
            self.pages = placement.anonymous_pages_by_node()
        self.transparent = placement.mapped_bytes("AnonHugePages")
        self.explicit = placement.mapped_bytes("Private_Hugetlb")
        trainer = self._build(network, solver, options, group)
        self.trainer = WatchedTrainer(trainer, signalled=self.kind == "process")
        return self.trainer

    def report(self, assigned_cpus: list[int] | None) -> Dict[str, Any]:
        """Return this process's answers, and the facts that the driver needs from each rank.

        `assigned_cpus` are the CPUs to which this rank was pinned. None if it was not pinned.
        """
        parameters, updates = self.trainer.synced_digest_and_step_count()
        return {
            "support": self._answers(assigned_cpus),
            "place": {
                "told_by": sorted(
                    name for name in os.environ if name.startswith(_LAUNCHER_VARIABLES)
                ),
                "own": assigned_cpus,
                "cpus": observe.affinity(),
                "parameters": parameters,
                "updates": updates,
                "mpi": observe.mapped_library_short_paths("libmpi"),
                "fast": observe.mapped_library_short_paths(*_FAST_NETWORK_LIBRARIES),
                "devices": _infiniband_devices(),
            },
        }

    def _answers(self, assigned_cpus: list[int] | None) -> List[Answer]:
        if self.kind == "huge_pages":
            return [_huge_pages_answer(self.explicit, placement.mapped_bytes("Private_Hugetlb"))]
        if self.kind != "process":
            return []
        grown = {
            node: count - self.pages.get(node, 0)
            for node, count in placement.anonymous_pages_by_node().items()
        }
        return [
            _affinity_answer(assigned_cpus, observe.affinity()),
            _transparent_pages_answer(self.transparent, placement.mapped_bytes("AnonHugePages")),
            *_numa_and_hbm_placement_answers(self.target, self.refused, grown),
            self.trainer.checkpoint_after_signal_answer(),
        ]


def probe_native_rank_count(count_ranks: Callable[[], int]) -> Dict[str, Any]:
    """Call `count_ranks`, which returns the number of ranks that the framework finds.

    The result is {"place": facts}, the form in which the driver reads facts about a rank. The facts
    are:

    - "found": the number of ranks. None if the framework fails or does not answer in time.
    - "said": the error message, or "" if there is none.
    """
    place: Dict[str, Any] = {"found": None, "said": f"no answer in {_TIMEOUT_SECONDS} s"}

    def count_and_store() -> None:
        try:
            place.update(found=count_ranks(), said="")
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            place["said"] = f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]

    signal.alarm(2 * _TIMEOUT_SECONDS)  # ends this process if the call blocks all threads
    asking = threading.Thread(target=count_and_store, daemon=True)
    asking.start()
    asking.join(_TIMEOUT_SECONDS)
    signal.alarm(0)
    return {"place": place}


class WatchedTrainer:
    """A wrapper around a trainer. It counts steps, and tests signals if `signalled` is true.

    In the test, this process gets SIGTERM during one step. After that step, the wrapper saves a
    checkpoint, sets all parameters to 0, restores the checkpoint, and continues to train.
    """

    def __init__(self, trainer: Any, signalled: bool) -> None:
        self._trainer, self._signalled = trainer, signalled
        self.steps = 0
        self._final_digest: Tuple[str, int] | None = None
        self._caught = False
        self._saved: Tuple[str, str] | None = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._trainer, name)
        if name == "disable_sync":  # afterwards the ranks' parameters diverge
            self._final_digest = self.synced_digest_and_step_count()
        return attribute

    def synced_digest_and_step_count(self) -> Tuple[str, int]:
        """Return a digest of all parameters, and the number of steps.

        After `disable_sync`, both values stay as they were before.
        """
        if self._final_digest:
            return self._final_digest
        bits = checkpoint.parameter_digests(self._trainer.parameters())
        text = "".join(bits[name] for name in sorted(bits))
        return hashlib.sha256(text.encode()).hexdigest(), self.steps

    def step(self, batch: Any) -> None:
        """Train one step. If SIGTERM arrives during this step, save and restore a checkpoint."""
        self.steps += 1
        if not self._signalled or self.steps != _SIGNALLED_STEP:
            self._trainer.step(batch)
            return
        before = signal.signal(signal.SIGTERM, self._note_signal)
        timer = threading.Timer(_SIGNAL_AFTER, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        self._trainer.step(batch)
        timer.join()
        self._trainer.wait_for_loss()
        signal.signal(signal.SIGTERM, before)
        if self._caught:
            self._saved = self._save_restore_and_compare()

    def wait_for_loss(self) -> float:
        """Return the trainer's last loss, after waiting for it."""
        return float(self._trainer.wait_for_loss())

    def checkpoint_after_signal_answer(self) -> Answer:
        """Return the answer for "signal": whether training continued after SIGTERM.

        "yes" requires that the checkpoint after the signal was restored bit for bit.
        """
        caught = f"SIGTERM arrived in step {_SIGNALLED_STEP}"
        if self._saved is None:
            return build_answer(
                "signal", "no", f"SIGTERM was sent in step {self.steps}, but did not arrive"
            )
        went = f", and {self.steps - _SIGNALLED_STEP} more steps were trained"
        supported, words = self._saved
        return build_answer(
            "signal", supported, f"{caught}: {words}{went if supported == 'yes' else ''}"
        )

    def _note_signal(self, *_: Any) -> None:
        self._caught = True

    def _save_restore_and_compare(self) -> Tuple[str, str]:
        parameters = self._trainer.parameters()
        before, zeros = (
            checkpoint.parameter_digests(parameters),
            checkpoint.zeros_like_parameters(parameters),
        )
        needed = 2 * sum(array.nbytes for array in parameters.values())
        try:
            with checkpoint.temporary_checkpoint_folder(Path("signalled"), needed) as folder:
                self._trainer.save(folder)
                checkpoint.fsync_files_in_folder(folder)
                size = checkpoint.folder_bytes(folder)
                self._trainer.assign(zeros)
                self._trainer.restore(folder)
                self._trainer.wait_for_loss()
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            self._trainer.assign(parameters)
            return "no", f"{type(error).__name__}: {first}"[:200]
        after = checkpoint.parameter_digests(self._trainer.parameters())
        if after != before:
            lost = sorted(name for name in before if after.get(name) != before[name])
            return "no", f"the restored checkpoint differs: {lost[0]}"
        return "yes", f"{size / _MEGABYTE:.1f} MB were saved afterwards and restored bit for bit"


def _prefer_cpuless_or_last_numa_node() -> Tuple[int, str | None]:
    """Prefer one NUMA node for new memory (see `placement.prefer_memory_of_node`).

    The preferred node has memory and no processors. If there is no such node, it is any node with
    memory. If there are several such nodes, it is the one with the highest number.

    Returns (number of the node, error message). The message is None if there is no error.
    """
    there = placement.numa_nodes("has_memory") or {0}
    target = max(there - placement.numa_nodes("has_cpu") or there)
    return target, placement.prefer_memory_of_node(target)


def _infiniband_devices() -> List[str]:
    folder = Path("/sys/class/infiniband")
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _affinity_answer(assigned_cpus: list[int] | None, allowed_cpus: List[int]) -> Answer:
    if assigned_cpus is None:
        return build_answer("affinity", "not here", "too few processors to assign to this rank")
    words = (
        f"assigned CPUs {_format_cpus(assigned_cpus)}; after training its threads may run on "
        f"{_format_cpus(allowed_cpus)}"
    )
    return build_answer(
        "affinity", "yes" if set(allowed_cpus) <= set(assigned_cpus) else "no", words
    )


def _transparent_pages_answer(before: int | None, after: int | None) -> Answer:
    mode = placement.huge_page_mode()
    if before is None or after is None or mode in ("", "never"):
        why = f"transparent huge pages are {mode!r}" if mode else "the system has no such pages"
        return build_answer("transparent_huge_pages", "not here", why)
    chosen = os.environ.get("GLIBC_TUNABLES", "no tunables")
    words = (
        f"{(after - before) / _MEGABYTE:.1f} MB more in huge pages after training than before "
        f"(mode {mode}, {chosen})"
    )
    return build_answer("transparent_huge_pages", "yes" if after > before else "no", words)


def _huge_pages_answer(before: int | None, after: int | None) -> Answer:
    if before is None or after is None:
        return build_answer(
            "huge_pages", "not here", "the system does not report reserved huge pages"
        )
    words = (
        f"{(after - before) / _MEGABYTE:.1f} MB more in reserved huge pages after training than "
        "before"
    )
    return build_answer("huge_pages", "yes" if after > before else "no", words)


def _numa_and_hbm_placement_answers(
    target: int, refusal: str | None, new_pages_by_node: Dict[int, int]
) -> List[Answer]:
    """Return the answers for "numa" and "high_bandwidth".

    Both answers are "yes" if more than 90 % of the memory that training allocated is on the
    preferred NUMA node. They are "not here" in different cases:

    - "numa": there is only one NUMA node with memory.
    - "high_bandwidth": no node has memory without processors, as high-bandwidth memory does.
    - Both: no node could be preferred, or the system does not report where memory is.

    - `target`: the number of the preferred node.
    - `refusal`: the error message if no node could be preferred, otherwise None.
    - `new_pages_by_node`: how many pages training added on each node.
    """
    there = placement.numa_nodes("has_memory")
    alone = there - placement.numa_nodes("has_cpu")
    everywhere = max(1, sum(max(0, count) for count in new_pages_by_node.values()))
    share = max(0, new_pages_by_node.get(target, 0)) / everywhere
    words = (
        f"{share:.0%} of {everywhere * placement.PAGE_BYTES / _MEGABYTE:.0f} MB allocated after "
        f"set_mempolicy (preferred: node {target}) are on that node"
    )
    supported = "yes" if share > 0.9 else "no"
    if refusal or not new_pages_by_node:
        supported, words = "not here", refusal or "the system does not report where memory is"
    numa = build_answer("numa", supported, words)
    if len(there) < 2 and not refusal:
        numa = build_answer("numa", "not here", f"there is only one NUMA node; {words}")
    high = build_answer("high_bandwidth", supported, words)
    if not alone:
        why = "no NUMA node has memory without processors, as MCDRAM and HBM in flat mode do"
        high = build_answer("high_bandwidth", "not here", why)
    return [numa, high]


def _format_cpus(cpus: List[int]) -> str:
    return ", ".join(map(str, cpus))
