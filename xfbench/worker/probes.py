"""Tries what a framework takes from an HPC system, while it trains in its own interpreter.

An attempt stands between the training loop and the trainer. What came of it is an answer, "yes",
"no" or "not here" (there is nothing here to try it with), with a line of evidence: nothing of it
is known beforehand. What several ranks saw is put together by the driver.
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
# A step takes longer than that, so that the signal comes in it.
_SIGNAL_AFTER, _SIGNALLED_STEP = 0.001, 3
_PATIENCE = 30  # seconds
_TOLD = ("PMIX_", "PMI_", "OMPI_COMM_WORLD_", "SLURM_PROCID", "SLURM_NTASKS", "XFBENCH_RANK")
_FAST = ("ibverbs", "rdmacm", "fabric", "libucp", "libuct", "psm2", "nccl")
_MEGABYTE = 10**6


def answer(feature: str, supported: str, evidence: str) -> Answer:
    """As records have it."""
    return {"feature": feature, "supported": supported, "evidence": evidence}


class Attempt:
    """What is tried in one launch: `build` is the adapter's, with everything else around it."""

    def __init__(self, build: Callable[..., Any], kind: str) -> None:
        self._build, self.kind = build, kind
        self.trainer: Any = None

    def build(self, network: Any, solver: Any, options: Any, group: Any) -> Any:
        """The adapter's trainer, watched; memory is looked at before there is one."""
        if self.kind == "process":
            self.target, self.refused = _elsewhere()
            self.pages = placement.pages_by_node()
        self.transparent = placement.rolled_up("AnonHugePages")
        self.explicit = placement.rolled_up("Private_Hugetlb")
        trainer = self._build(network, solver, options, group)
        self.trainer = Watched(trainer, signalled=self.kind == "process")
        return self.trainer

    def told(self, own: list[int] | None) -> Dict[str, Any]:
        """The reply's: what was answered here, and what the driver needs of each rank."""
        parameters, updates = self.trainer.together()
        return {
            "support": self._answers(own),
            "place": {
                "told_by": sorted(name for name in os.environ if name.startswith(_TOLD)),
                "own": own,
                "cpus": observe.affinity(),
                "parameters": parameters,
                "updates": updates,
                "mpi": observe.mapped("libmpi"),
                "fast": observe.mapped(*_FAST),
                "devices": _devices(),
            },
        }

    def _answers(self, own: list[int] | None) -> List[Answer]:
        if self.kind == "huge_pages":
            return [_explicit(self.explicit, placement.rolled_up("Private_Hugetlb"))]
        if self.kind != "process":
            return []
        grown = {
            node: count - self.pages.get(node, 0)
            for node, count in placement.pages_by_node().items()
        }
        return [
            _kept(own, observe.affinity()),
            _transparent(self.transparent, placement.rolled_up("AnonHugePages")),
            *_placed(self.target, self.refused, grown),
            self.trainer.outcome(),
        ]


def found_by_itself(ranks: Callable[[], int]) -> Dict[str, Any]:
    """How many ranks the framework finds, in the words of a place; it may wait for them in vain."""
    told: Dict[str, Any] = {"found": None, "said": f"no answer in {_PATIENCE} s"}

    def ask() -> None:
        try:
            told.update(found=ranks(), said="")
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            told["said"] = f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]

    signal.alarm(2 * _PATIENCE)  # for what lets no other thread run
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PATIENCE)
    signal.alarm(0)
    return {"place": told}


class Watched:
    """A trainer that counts its steps; if `signalled`, asked to end in one of them.

    It then saves a checkpoint as soon as the step is done, forgets everything, reads it
    back, and training goes on.
    """

    def __init__(self, trainer: Any, signalled: bool) -> None:
        self._trainer, self._signalled = trainer, signalled
        self.steps = 0
        self._together: Tuple[str, int] | None = None
        self._caught = False
        self._saved: Tuple[str, str] | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._trainer, name)
        if name == "disable_sync":  # from then on ranks are no more alike
            self._together = self.together()
        return found

    def together(self) -> Tuple[str, int]:
        """A digest of all parameters, and after how many updates, of ranks that train together."""
        if self._together:
            return self._together
        bits = checkpoint.fingerprint(self._trainer.parameters())
        text = "".join(bits[name] for name in sorted(bits))
        return hashlib.sha256(text.encode()).hexdigest(), self.steps

    def step(self, batch: Any) -> None:
        self.steps += 1
        if not self._signalled or self.steps != _SIGNALLED_STEP:
            self._trainer.step(batch)
            return
        before = signal.signal(signal.SIGTERM, self._catch)
        asked = threading.Timer(_SIGNAL_AFTER, os.kill, (os.getpid(), signal.SIGTERM))
        asked.start()
        self._trainer.step(batch)
        asked.join()
        self._trainer.synchronize()
        signal.signal(signal.SIGTERM, before)
        if self._caught:
            self._saved = self._save()

    def synchronize(self) -> float:
        return float(self._trainer.synchronize())

    def outcome(self) -> Answer:
        """Whether it could be stopped by a signal and go on."""
        caught = f"SIGTERM came in step {_SIGNALLED_STEP}"
        if self._saved is None:
            return answer("signal", "no", f"SIGTERM was sent in step {self.steps}, and never came")
        went = f", and {self.steps - _SIGNALLED_STEP} steps more were trained"
        supported, words = self._saved
        return answer("signal", supported, f"{caught}: {words}{went if supported == 'yes' else ''}")

    def _catch(self, *_: Any) -> None:
        self._caught = True

    def _save(self) -> Tuple[str, str]:
        parameters = self._trainer.parameters()
        before, zeros = checkpoint.fingerprint(parameters), checkpoint.zeros(parameters)
        needed = 2 * sum(array.nbytes for array in parameters.values())
        try:
            with checkpoint.fresh(Path("signalled"), needed) as folder:
                self._trainer.save(folder)
                checkpoint.flush(folder)
                size = checkpoint.size(folder)
                self._trainer.assign(zeros)
                self._trainer.restore(folder)
                self._trainer.synchronize()
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            self._trainer.assign(parameters)
            return "no", f"{type(error).__name__}: {first}"[:200]
        after = checkpoint.fingerprint(self._trainer.parameters())
        if after != before:
            lost = sorted(name for name in before if after.get(name) != before[name])
            return "no", f"what was saved does not read back equal: {lost[0]}"
        return "yes", f"{size / _MEGABYTE:.1f} MB were saved after it and read back bit for bit"


def _elsewhere() -> Tuple[int, str | None]:
    """Have memory come from where it would not: of memory alone, else the last node."""
    there = placement.nodes("has_memory") or {0}
    target = max(there - placement.nodes("has_cpu") or there)
    return target, placement.prefer(target)


def _devices() -> List[str]:
    folder = Path("/sys/class/infiniband")
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _kept(own: list[int] | None, seen: List[int]) -> Answer:
    if own is None:
        return answer("affinity", "not here", "too few processors to give it some of its own")
    words = f"given CPUs {_listed(own)}; after training its threads may run on {_listed(seen)}"
    return answer("affinity", "yes" if set(seen) <= set(own) else "no", words)


def _transparent(before: int | None, after: int | None) -> Answer:
    mode = placement.huge_page_mode()
    if before is None or after is None or mode in ("", "never"):
        why = f"transparent huge pages are {mode!r}" if mode else "the system has none"
        return answer("transparent_huge_pages", "not here", why)
    chosen = os.environ.get("GLIBC_TUNABLES", "no tunables")
    words = (
        f"{(after - before) / _MEGABYTE:.1f} MB more in huge pages after training than before "
        f"(mode {mode}, {chosen})"
    )
    return answer("transparent_huge_pages", "yes" if after > before else "no", words)


def _explicit(before: int | None, after: int | None) -> Answer:
    if before is None or after is None:
        return answer("huge_pages", "not here", "the system does not say who has them")
    words = f"{(after - before) / _MEGABYTE:.1f} MB more of the reserved pages after training"
    return answer("huge_pages", "yes" if after > before else "no", words)


def _placed(target: int, refused: str | None, grown: Dict[int, int]) -> List[Answer]:
    """What of the memory that training took lies where it was to."""
    there = placement.nodes("has_memory")
    alone = there - placement.nodes("has_cpu")
    everywhere = max(1, sum(max(0, count) for count in grown.values()))
    share = max(0, grown.get(target, 0)) / everywhere
    words = (
        f"{share:.0%} of {everywhere * placement.PAGE_BYTES / _MEGABYTE:.0f} MB that came after "
        f"set_mempolicy (preferred: node {target}) lie there"
    )
    told = "yes" if share > 0.9 else "no"
    if refused or not grown:
        told, words = "not here", refused or "the system does not say where memory lies"
    numa = answer("numa", told, words)
    if len(there) < 2 and not refused:
        numa = answer("numa", "not here", f"there is one NUMA node alone; {words}")
    high = answer("high_bandwidth", told, words)
    if not alone:
        why = "no NUMA node has memory and no processors, as MCDRAM and HBM in flat mode do"
        high = answer("high_bandwidth", "not here", why)
    return [numa, high]


def _listed(cpus: List[int]) -> str:
    return ", ".join(map(str, cpus))
