"""JAX opens one GPU, that of its rank: with a library that answers as NVML does for two devices."""

import shutil

import pytest

from tests import nvml
from xfbench.base import processes
from xfbench.environments import environment, worker_archive
from xfbench.model import adapter

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
def test_jax_opens_only_the_gpu_of_its_rank(tmp_path, monkeypatch, device, opened):
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml.build(tmp_path)
    nvml.write_device(tmp_path / "values", count=2)
    jax = adapter.load("jax")
    jax_environment = environment.ensure_environment(jax)
    variables = {
        **jax_environment.variables(jax, "xla", 1),
        "PYTHONPATH": str(worker_archive.ensure_worker_archive("jax")),
        "LD_LIBRARY_PATH": str(tmp_path),
        "NVML_VALUES": str(tmp_path / "values"),
    }
    code = CHOOSE.format(device=device)
    command = [str(jax_environment.interpreter), "-c", code]
    output = processes.output(command, environment=variables, cwd=tmp_path, timeout=120)
    assert output.split()[-1] == opened
