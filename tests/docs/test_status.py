"""The README's table of what was tested."""

from pathlib import Path

import pytest

from tests.docs import status
from xfbench.environments import inventory
from xfbench.model import adapter

README = Path(__file__).parents[2] / "README.md"
LAUNCHES = [
    ("torch", {"framework": "torch", "ranks": 2, "launcher": "slurm"}, "2026-01-01"),
    ("torch", {"framework": "torch", "ranks": 4, "launcher": "slurm"}, "2026-01-02"),
]


def test_readme_says_what_the_records_in_docs_show():
    assert status.build_status_table() in README.read_text()


def test_framework_list_names_the_devices_without_a_certified_launch():
    launches = status.read_certified_requests()
    untested = {
        name: tuple(
            device
            for device in adapter.load(name).devices
            if status.describe(name, {"device": device}, launches) == "untested"
        )
        for name in adapter.list_names()
    }
    assert {k: v for k, v in untested.items() if v} == inventory.UNTESTED_DEVICES


@pytest.mark.parametrize(
    ("framework", "conditions", "expected"),
    [
        ("torch", {"launcher": "slurm"}, "2026-01-02"),
        ("torch", {"ranks": 2, "nodes": 1}, "2026-01-02"),
        ("torch", {"launcher": "mpi"}, "untested"),
        ("mxnet", {"launcher": "slurm"}, "untested"),
        ("reference", {"device": "cuda"}, "not available"),
        ("reference", {"launcher": "slurm"}, "not available"),
    ],
)
def test_status_is_the_last_day_of_a_certified_launch(framework, conditions, expected):
    assert status.describe(framework, conditions, LAUNCHES) == expected
