"""JAX opens one GPU, that of its rank: with a library that answers as NVML does for two devices."""

import shutil

import pytest

from tests import nvml
from tests.adapters.snippets import run_snippet

CHOOSE = """
from jax._src import xla_bridge
from xfbench.adapters.jax import device
from xfbench.worker.protocol import Unavailable
try:
    device.choose_device("{device}", 3)
except Unavailable:
    pass
print(xla_bridge.CUDA_VISIBLE_DEVICES.value)
"""


@pytest.mark.deep
@pytest.mark.parametrize(("device", "opened"), [("cuda", "1"), ("cpu", "all")])
def test_jax_opens_only_the_gpu_of_its_rank(tmp_path, device, opened):
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    nvml.build(tmp_path)
    nvml.write_device(tmp_path / "values", count=2)
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "NVML_VALUES": str(tmp_path / "values")}
    assert run_snippet("jax", CHOOSE.format(device=device), tmp_path, **variables) == [opened]
