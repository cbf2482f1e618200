"""PyTorch asked for CUDA, as its worker is on a node where nobody has looked for a device."""

import pytest

from xfbench import machine, runner
from xfbench.results.store import Store


@pytest.fixture
def asked(cell, monkeypatch):
    """A request for CUDA, of a driver that takes it for granted that there is a device."""
    if machine.accelerators():
        pytest.skip("there is an NVIDIA device here")
    monkeypatch.setattr(machine, "accelerators", lambda: ["a GPU"])
    return cell(framework="torch", kernel="cudnn", device="cuda").request(1)


def test_without_a_device_it_says_so(asked, tmp_path):
    session = runner.Session(Store(tmp_path / "results"))
    session.prepare(["torch"], {}, print)
    [record] = runner.run([asked], session)
    assert record.status == "unavailable"
    assert "built without CUDA, finds no NVIDIA device" in record.reason
