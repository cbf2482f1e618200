"""Cases: each is one task that a framework's interpreter does for tests.

Tests have their cases as parameters. A session therefore knows which cases its tests need and
runs those of a framework in as few processes as possible (`answers.py`).
"""

from dataclasses import dataclass, replace

import pytest

from xfbench.equality.blocks import NOISE
from xfbench.model import adapter
from xfbench.workloads import Pixels, Workload, workloads
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

FRAMEWORKS = ("caffe", "ipex", "jax", "mxnet", "tensorflow", "torch")
SMALL = ("convnet", "convnet-quick", "lenet")
# Each of these has its own process, so that no other test waits for it.
TAKE_MINUTES = ("caffenet", "googlenet", "resnet50", "resnet101")

_MSRA_FILLERS = {"weight_filler": xl.Filler("msra"), "bias_filler": xl.Filler("constant", 0.1)}
_XAVIER_FILLERS = {"weight_filler": xl.Filler("xavier"), "bias_filler": xl.Filler("constant", 0.0)}
# A network with running averages, and a learning rate that changes at the fifth update.
NORMED = Workload(
    xl.Network(
        "normed",
        (3, 8, 8),
        5,
        (
            xl.Convolution("conv", ("data",), 4, 3, 1, 1, **_MSRA_FILLERS),
            xl.BatchNorm("norm", ("conv",), eps=1e-5),
            xl.ReLU("relu", ("norm",)),
            xl.InnerProduct("ip", ("relu",), 5, **_MSRA_FILLERS),
            xl.SoftmaxLoss("loss", ("ip",)),
        ),
    ),
    Solver(0.05, "step", gamma=0.1, stepsize=4, momentum=0.9, weight_decay=1e-3),
    replace(NOISE, mean=NOISE.mean * 3),
    4,
    "synthetic",
    "made up",
)
# An output can overwrite its input here: batch norm changes the signs of its input.
RELU_NORM = replace(
    NORMED,
    network=xl.Network(
        "relu-norm",
        (3, 8, 8),
        5,
        (
            xl.Convolution("conv", ("data",), 4, 3, 1, 1, **_MSRA_FILLERS),
            xl.ReLU("relu", ("conv",)),
            xl.BatchNorm("norm", ("relu",), eps=1e-5),
            xl.InnerProduct("ip", ("norm",), 5, **_MSRA_FILLERS),
            xl.SoftmaxLoss("loss", ("ip",)),
        ),
    ),
)
# The learning rates are so small that the gradient stays constant.
WARM = replace(workloads()["lenet"], solver=Solver(1e-4, momentum=0.0, warmup=4))
LARS = replace(workloads()["lenet"], solver=Solver(0.01, momentum=0.0, lars=0.02))
CROPPED = Workload(
    xl.Network(
        "cropped",
        (3, 20, 20),
        11,
        (
            xl.Convolution("conv", ("data",), 4, 3, 1, 1, **_XAVIER_FILLERS),
            xl.InnerProduct("ip", ("conv",), 11, **_XAVIER_FILLERS),
            xl.SoftmaxLoss("loss", ("ip",)),
        ),
    ),
    Solver(0.01, "fixed", momentum=0.9),
    Pixels("BGR", (10.0, 20.0, 30.0), 0.5, mirror=True),
    4,
    "synthetic",
    "made up",
)
WORKLOADS = {
    **workloads(),
    **{"normed": NORMED, "relu-norm": RELU_NORM, "warm": WARM, "lars": LARS, "cropped": CROPPED},
}


@dataclass(frozen=True)
class Case:
    """A task: `action` is a function of `inside.py`, and the other fields are its input.

    The default kernel is that of the adapter. `data` names a data set or a variant of the action.
    """

    action: str
    framework: str
    workload: str = "lenet"
    precision: str = "float32"
    kernel: str = ""
    threads: int = 1
    device: str = "cpu"
    steps: int = 1
    data: str = ""

    def __post_init__(self):
        if not self.kernel:
            kernels = adapter.load(self.framework).kernels_on(self.device)
            object.__setattr__(self, "kernel", kernels[0])

    @property
    def process(self):
        """The settings that cases in one process share, all chosen before it starts.

        After a case on a GPU, a framework cannot run cases on the CPU.
        """
        variables = adapter.load(self.framework).kernels[self.kernel].variables
        switches = () if self.device == "cuda" else tuple(sorted(variables.items()))
        long_workload = self.workload if self.workload in TAKE_MINUTES else ""
        return self.framework, switches, self.threads, self.device, long_workload


def parametrize(cases, *names, marks=lambda case: ()):
    """Parametrize a test by `case`; ids have the fields `names`, `marks` gives a case's marks."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(
                case,
                id="-".join(str(getattr(case, name)) for name in names),
                marks=marks(case),
            )
            for case in cases
        ],
    )
