"""The README's tables of what was tested."""

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
    assert f"\n\n{status.build_status_table()}\n\n" in README.read_text()


def test_readme_says_how_each_site_file_was_tested():
    assert f"\n\n{status.build_site_table()}\n\n" in README.read_text()


def test_readme_is_short():
    lines = README.read_text().splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 100


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


@pytest.mark.parametrize(
    ("site", "request_fields", "expected"),
    [
        ("workstation", {"launcher": "local"}, "2026-01-01"),
        ("workstation", {"launcher": "slurm"}, "untested"),
        ("stampede2", {"launcher": "slurm"}, "untested, retired"),
        ("stampede2", {"launcher": "slurm", "site": "stampede2"}, "2026-01-01"),
        ("generic-slurm", {"launcher": "slurm", "site": "other"}, "real Slurm, in tests/cluster"),
        ("generic-slurm", {"site": "generic-slurm"}, "2026-01-01"),
        ("summitdev", {"launcher": "mpi"}, "not available"),
    ],
)
def test_site_status_is_a_day_a_test_or_the_lack_of_both(site, request_fields, expected):
    launches = [("torch", request_fields, "2026-01-01")]
    assert status.describe_site(site, launches, {"generic-slurm"}) == expected


def test_sites_on_the_test_cluster_are_those_that_its_tests_name():
    assert status.find_sites_on_test_cluster() == {"generic-slurm"}
