"""What PyTorch compiles is kept where nobody else could have put something for it to run."""

import json

import pytest

from tests import interpreters
from xfbench import worker_archive

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
