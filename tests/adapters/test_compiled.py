"""What PyTorch compiles is kept where nobody else could put something, and goes the right way."""

import json

import pytest

from tests import interpreters
from xfbench.running import worker_archive

SCRIPT = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from xfbench.adapters.torch import train
from xfbench.worker.input import synthetic_batch
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workloads
lenet = workloads()["lenet"]
trainer = train.build(lenet.network, lenet.solver, Options("inductor", 1), Group())
trainer.step(trainer.load(*synthetic_batch(lenet, 2, 0)))
used = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
kernel = trainer.observed()["kernel"]
print(json.dumps({"used": str(used), "kept": len([*used.rglob("*.so")]), "kernel": kernel}))
"""


@pytest.mark.parametrize(
    ("mode", "linked", "taken"), [(0o700, False, True), (0o777, False, False), (0o700, True, False)]
)
def test_a_folder_that_others_could_have_filled_is_not_used(tmp_path, mode, linked, taken):
    folder = tmp_path / "compiled"
    folder.mkdir()
    folder.chmod(mode)
    if linked:
        folder = tmp_path / "link"
        folder.symlink_to("compiled")
    shown = interpreters.run(
        *("torch", SCRIPT, worker_archive.worker_archive("torch")),
        folder=tmp_path,
        variables={"TORCHINDUCTOR_CACHE_DIR": str(folder)},
    )
    told = json.loads(shown.splitlines()[-1])
    assert told["kernel"] == "inductor" and told["kept"] > 0
    assert (told["used"] == str(folder)) is taken
    assert taken or not [*folder.iterdir()]


GRADIENTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from xfbench.adapters.torch import train
from xfbench.worker.input import synthetic_batch
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workloads
from xfbench.workloads.initial import initial_parameters
convnet = workloads()["convnet"]
found = []
for kernel in ("native", "inductor"):
    trainer = train.build(convnet.network, convnet.solver, Options(kernel, 1), Group())
    trainer.assign(initial_parameters(convnet.network, 0))
    found.append(trainer.gradients(trainer.load(*synthetic_batch(convnet, 2, 0))))
right, compiled = found
off = {k: np.linalg.norm(compiled[k] - v) / np.linalg.norm(v) for k, v in right.items()}
print(json.dumps({name: float(far) for name, far in off.items()}))
"""


def test_windows_of_average_pooling_that_hang_over_the_edge_have_their_gradient(tmp_path):
    """Compiled as PyTorch has it by default conv1's is off by a third (docs/findings.md)."""
    shown = interpreters.run(
        *("torch", GRADIENTS, worker_archive.worker_archive("torch")), folder=tmp_path
    )
    off = json.loads(shown.splitlines()[-1])
    assert "conv1/weight" in off and max(off.values()) < 1e-4
