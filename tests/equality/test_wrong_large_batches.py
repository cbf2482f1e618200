"""Faults of batches of 32 images or more, planted in adapters: the comparison names the layer.

`xfbench/equality/plants.toml` has more of them: PyTorch's convolutions in TF32.
"""

import pytest

from tests.equality.proofs import Proof
from xfbench.environments import environment
from xfbench.equality import plants, timed_batch
from xfbench.equality.plants import PlantedBug
from xfbench.equality.verify import Verifier
from xfbench.model import adapter

pytestmark = pytest.mark.deep
# A user's module with a small network that has a batch norm.
NORMED = "from tests.adapters.cases import NORMED\nWORKLOADS = (NORMED,)\n"


def change_torch(name, workload, layer, layer_type, module, forward):
    """Return the fault of a PyTorch whose `module` computes `forward` for large batches.

    - `layer_type`: the type of the layers that the module computes
    - `forward`: lines of Python that may change `x`, the input, or return the output
    """
    start = f"    if isinstance(layer, xl.{layer_type}):\n"
    lines = [
        f"        class {module}(nn.{module}):",
        "            def forward(self, x):",
        "                if len(x) >= 32:",
        *(f"                    {line}" for line in forward),
        "                return super().forward(x)",
        f"        return {module}(",
    ]
    return PlantedBug(
        name=name,
        framework="torch",
        workload=workload,
        layer=layer,
        file="graph.py",
        find=f"{start}        return nn.{module}(",
        replace=start + "\n".join(lines),
    )


def change_batch_norm(name, *forward):
    return change_torch(name, "normed", "norm", "BatchNorm", "BatchNorm2d", forward)


EPS = change_batch_norm("batch norm's eps is 1e-3", "self.eps = 1e-3")
HALVES = change_batch_norm(
    "batch norm of each half of the batch",
    "return torch.cat([super(BatchNorm2d, self).forward(half) for half in x.chunk(2)])",
)
UNBIASED = change_batch_norm(
    "batch norm divides by the unbiased deviation",
    "values = x.numel() // x.shape[1]",
    "return super().forward(x) * ((values - 1) / values) ** 0.5",
)
JAX_TF32 = PlantedBug(
    name="JAX rounds inputs of convolutions to TF32",
    framework="jax",
    workload="lenet",
    layer="conv1",
    find="    return lax.conv_general_dilated(\n        x,\n",
    replace=(
        "    x = lax.reduce_precision(x, 8, 10) if len(x) >= 32 else x\n"
        "    return lax.conv_general_dilated(\n        x,\n"
    ),
)
# Rounding to nearest with 4 bits would be within ten times what bfloat16 rounds.
TRUNCATED = change_torch(
    "inputs of convolutions are truncated to 3 bits",
    *("lenet", "conv1", "Convolution", "Conv2d"),
    (
        "bits = x.detach().float().contiguous().view(torch.int32)",
        "truncated = (bits & ~0x1fffff).view(torch.float32)",
        "x = x + (truncated - x.detach()).to(x.dtype)",
    ),
)


@pytest.mark.parametrize(
    ("bug", "precision"),
    [
        (EPS, "float32"),
        pytest.param(HALVES, "float32", marks=pytest.mark.long),
        pytest.param(UNBIASED, "float32", marks=pytest.mark.long),
        pytest.param(JAX_TF32, "float32", marks=pytest.mark.long),
        pytest.param(TRUNCATED, "bfloat16", marks=pytest.mark.long),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_fault_of_large_batches_is_located(bug, precision, tmp_path, monkeypatch):
    (tmp_path / "normed.py").write_text(NORMED)
    monkeypatch.setenv("XFBENCH_WORKLOADS", str(tmp_path))
    request = Proof.of(bug.framework, bug.workload, precision=precision).request
    with plants.applied(bug):
        found = environment.ensure_environment(adapter.load(bug.framework))
        verdicts = timed_batch.verify_batch_sizes(Verifier(), request, found, [8, 64])
    assert (verdicts[8].verdict, verdicts[8].reason) == ("equal", None)
    assert verdicts[64].verdict == "different"
    assert verdicts[64].place.layer == bug.layer
