"""Precisions that a V100 lacks are unsupported. The frameworks say that the GPU is one."""

import pytest

from tests.adapters.snippets import run_snippet
from xfbench.worker import gpus
from xfbench.worker.protocol import Unsupported

REQUIRE = {
    "jax": """
from types import SimpleNamespace
from xfbench.adapters.jax import device
gpu = SimpleNamespace(compute_capability="7.0", device_kind="Tesla V100")
require = lambda precision: device.require_precision(gpu, precision)
""",
    "tensorflow": """
import tensorflow as tf
from xfbench.adapters.tensorflow import device
details = {"compute_capability": (7, 0), "device_name": "Tesla V100"}
tf.config.experimental.get_device_details = lambda gpu: details
require = lambda precision: device.require_precision("a GPU", precision)
""",
    "torch": """
import torch
from xfbench.adapters.torch import exchange
torch.cuda.get_device_capability = lambda: (7, 0)
torch.cuda.get_device_name = lambda: "Tesla V100"
require = exchange.require_precision
""",
}
TRY_ALL = """
from xfbench.worker.protocol import Unsupported
refused = []
for precision in ("float32", "float64", "tf32", "bfloat16", "float16"):
    try:
        require(precision)
    except Unsupported as error:
        assert "Tesla V100 has 7.0" in str(error), error
        refused.append(precision)
print(*refused)
"""


@pytest.mark.deep
@pytest.mark.parametrize("framework", REQUIRE)
def test_v100_has_neither_tf32_nor_bfloat16(tmp_path, framework):
    assert run_snippet(framework, REQUIRE[framework] + TRY_ALL, tmp_path) == ["tf32", "bfloat16"]


@pytest.mark.parametrize(
    ("precision", "capability", "refused"),
    [
        ("bfloat16", (8, 0), False),
        ("bfloat16", (7, 5), True),
        ("float16", (3, 5), True),  # K40
        ("float16", (6, 0), False),  # P100
        ("float32", (3, 5), False),
        ("tf32", None, False),  # unknown
    ],
)
def test_precision_needs_a_compute_capability(precision, capability, refused):
    if not refused:
        gpus.require_precision(precision, capability)
        return
    with pytest.raises(Unsupported, match=f"precision {precision} needs a GPU of compute"):
        gpus.require_precision(precision, capability, "a GPU")
