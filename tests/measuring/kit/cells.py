"""The cells of a kit, in order of value, for a GPU and for a rehearsal on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xfbench.model import adapter
from xfbench.model.request import Cell, Protocol
from xfbench.planning import experiment

FIRST = ("lenet", "convnet", "alexnet")
OTHERS = ("googlenet", "resnet50", "caffenet", "convnet-quick", "resnet101")
PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
# The plain loop that each kernel is compared with (see `there/plain.py`).
PLAIN_MODES = {
    "cudnn": "eager",
    "onednn": "eager",
    "channels_last": "last",
    "inductor": "compile",
    "xla": "jit",
    "cuda_graphs": "graphs",
}
EXTRA_MODE = "graphs"  # torch.compile with CUDA graphs
_LAST, _INDUCTOR, _XLA = "channels_last", "inductor", "xla"


@dataclass(frozen=True)
class Size:
    """How large a kit is.

    - `eager`: the kernel that stands for the eager kernel without channels last
    - `networks`: the networks of the kit, a subset of all
    - `precisions`: the precisions that are verified and timed
    - `timed`: networks whose throughput is measured, with the batch sizes of each
    - `launches`: launches of the cells that matter most, and of others
    - `lengths`: settings that say how long a launch is
    - `inductor`: whether compiled PyTorch is among the kernels
    - `limit_factor`: share of the usual time limits and estimates
    - `min_limit_s`: smallest time limit of an item
    """

    name: str
    device: str
    eager: str
    networks: Sequence[str]
    precisions: Sequence[str]
    timed: dict[str, Sequence[int]]
    launches: tuple[int, int]
    lengths: dict[str, Any]
    threads: int
    inductor: bool
    limit_factor: float
    min_limit_s: float


SIZES = {
    "gpu": Size(
        name="gpu",
        device="cuda",
        eager="cudnn",
        networks=(*FIRST, *OTHERS),
        precisions=PRECISIONS,
        timed={"alexnet": (256,), "googlenet": (256, 32), "resnet50": (256, 32)},
        launches=(5, 3),
        lengths={"steps": 50, "min_time": 2.0, "warmup_time": 1.0},
        threads=4,
        inductor=True,
        limit_factor=1.0,
        min_limit_s=120,
    ),
    "rehearsal": Size(
        name="rehearsal",
        device="cpu",
        eager="onednn",
        networks=("lenet", "convnet"),
        precisions=PRECISIONS,
        timed={"lenet": (64,)},
        launches=(1, 1),
        lengths={"steps": 4, "warmup": 1, "min_time": 0.0, "warmup_time": 0.0},
        threads=1,
        inductor=True,
        limit_factor=0.4,
        min_limit_s=900,
    ),
    "short": Size(
        name="short",
        device="cpu",
        eager="onednn",
        networks=("lenet",),
        precisions=("float32",),
        timed={"lenet": (64,)},
        launches=(1, 1),
        lengths={"steps": 4, "warmup": 1, "min_time": 0.0, "warmup_time": 0.0},
        threads=1,
        inductor=False,
        limit_factor=0.4,
        min_limit_s=900,
    ),
}


@dataclass(frozen=True)
class Group:
    """Cells of one stage of the kit: the same networks, in several kernels.

    Kernels that the adapter or the kit's size does not have are left out.
    """

    stage: str
    kernels: Sequence[tuple[str, str]]
    precision: str
    networks: Sequence[str]
    device: str
    batch_sizes: Sequence[int] | None = None
    launches: int = 1
    more: tuple[tuple[str, Any], ...] = ()

    def cells(self, size: Size) -> Iterator[tuple[Cell, Protocol]]:
        """Yield the cells with their numbers of launches, network by network."""
        for network in self.networks:
            for framework, kernel in self.kernels:
                if kernel not in adapter.load(framework).choose_kernels(["all"], self.device):
                    continue
                if kernel == _INDUCTOR and not size.inductor:
                    continue
                settings = {**size.lengths, **dict(self.more)}
                matrix = experiment.build_matrix(
                    framework=[framework],
                    kernel=[kernel],
                    precision=[self.precision],
                    workload=[network],
                    device=[self.device],
                    batch_size=self.batch_sizes,
                    launches=self.launches,
                    data=["synthetic"],
                    threads=[size.threads],
                    **settings,
                )
                yield from experiment.expand_matrices([matrix], {framework: "python3"})


def list_groups(size: Size) -> list[Group]:
    """Return the groups of cells: those that are verified first, then those that are timed."""
    kernels = (("torch", size.eager), ("torch", _LAST), ("jax", _XLA))
    first, others = ([name for name in names if name in size.networks] for names in (FIRST, OTHERS))
    compiled = [name for name in ("lenet", "alexnet", "resnet50") if name in size.networks]
    timed = [name for name in size.timed if name in OTHERS]
    if size.device == "cuda":
        groups = [_verified(size, kernels, "float32", first)]
    else:  # as few as show that each kind of item works
        groups = [
            _verified(size, kernels, "float32", first[:1]),
            _verified(size, kernels[:1], "float32", first[1:]),
            Group("verification", (("torch", "cudnn"),), "float32", first[:1], "cuda"),
        ]
        kernels, first = kernels[1:], first[:1]
    groups += [
        _verified(size, kernels, "tf32", first),
        _verified(size, kernels, "bfloat16", first),
        _verified(size, (("torch", "cudnn_deterministic"),), "float32", first),
        _verified(size, kernels, "float32", others),
        _verified(size, (("torch", _INDUCTOR),), "float32", compiled),
        _verified(size, kernels, "tf32", timed),
        _verified(size, kernels, "bfloat16", timed),
        _verified(size, kernels, "float16", first),
    ]
    groups += _list_timed_groups(size)
    lenet = ["lenet"]
    large = "resnet50" if size.device == "cuda" else "lenet"
    eager = (("torch", size.eager),)
    ranks = (("ranks", [2]), ("scaling", "weak"), ("strategy", ["ddp"]))
    ranks += (("strategy_options", {"backend": "gloo"}),)
    groups += [
        Group("rest", eager, "float32", lenet, size.device, more=ranks),
        Group("rest", eager, "float32", lenet, size.device, more=(("checkpoints", 2),)),
        Group("rest", eager, "float32", [large], size.device, more=(("profile", True),)),
    ]
    return [group for group in groups if group.networks and group.precision in size.precisions]


def _verified(
    size: Size, kernels: Sequence[tuple[str, str]], precision: str, networks: Sequence[str]
) -> Group:
    device = "cuda" if precision == "tf32" else size.device
    return Group("verification", kernels, precision, networks, device)


def _list_timed_groups(size: Size) -> Iterator[Group]:
    """Yield the groups of the throughput: float32 and bfloat16 at the first batch size go first."""
    compiled = (("torch", _INDUCTOR), ("jax", _XLA), ("torch", "cuda_graphs"))
    of_precision = {
        "float32": (("torch", size.eager), *compiled),
        "bfloat16": (("torch", _LAST), *compiled),
        "tf32": (("torch", _LAST), ("torch", _INDUCTOR), ("jax", _XLA)),
    }
    if size.device == "cpu":  # compiling takes long, and TF32 ends as unavailable
        of_precision["bfloat16"] = (("torch", _LAST), ("jax", _XLA))
        of_precision["tf32"] = of_precision["tf32"][:1]
    many, few = size.launches
    order = [(0, "float32", many), (0, "bfloat16", many), (0, "tf32", few)]
    order += [(1, precision, few) for precision in of_precision]
    for place, precision, launches in order:
        device = "cuda" if precision == "tf32" else size.device
        for network, batch_sizes in size.timed.items():
            if place < len(batch_sizes):
                yield Group(
                    "throughput",
                    of_precision[precision],
                    precision,
                    [network],
                    device,
                    [batch_sizes[place]],
                    launches,
                )
