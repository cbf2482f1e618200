"""Workloads of a user: the documentation page can be followed, and mistakes are reported."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xfbench.workloads import WorkloadError, workloads

PAGE = (Path(__file__).parent.parent.parent / "docs/adding-a-workload.md").read_text()
MODULE = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
COMMANDS = re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL), re.M)
SMALL = " --batch-size 4 --steps 2 --launches 1 --warmup 0"


@pytest.fixture
def folder(tmp_path):
    """The folder with the module of the documentation page, at the documented path."""
    [module_path] = re.findall(r"this is `(\S+)`", PAGE)
    (tmp_path / module_path).parent.mkdir()
    (tmp_path / module_path).write_text(MODULE)
    return tmp_path


@pytest.mark.deep
def test_documentation_page_can_be_followed(folder):
    assert COMMANDS[0] == "export XFBENCH_WORKLOADS=$PWD/networks"
    replacements = {"--steps 20 --launches 5": SMALL}
    lines = [*COMMANDS, "xfbench workload show smallnet --json > shown.json"]
    script = "\n".join(lines)
    for original, replacement in replacements.items():
        assert original in script
        script = script.replace(original, replacement)
    process = subprocess.run(
        ["bash", "-ex", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "different" not in process.stdout
    leaderboard = process.stdout.split("smallnet ·")[-1]
    assert "not ranked" not in leaderboard
    assert re.search(r"^1 +torch ", leaderboard, re.M), leaderboard
    shown = json.loads((folder / "shown.json").read_text())
    assert shown["parameters"] == 8 * 25 + 8 + 8 * 12 * 12 * 32 + 32 + 32 * 10 + 10


def test_user_workload_is_added_to_the_built_in_workloads(folder, monkeypatch):
    built_in = list(workloads())
    monkeypatch.setenv("XFBENCH_WORKLOADS", str(folder / "networks"))
    assert list(workloads()) == [*built_in, "smallnet"]
    assert workloads()["smallnet"] == workloads()["smallnet"]


@pytest.mark.parametrize(
    ("original_text", "replacement", "words"),
    [
        ('"smallnet"', '"lenet"', "workload lenet already exists"),
        ("Pooling,", "Poling,", "smallnet.py: ImportError: cannot import name 'Poling'"),
        ('("pool1",)', '("pol1",)', "smallnet.py: KeyError: 'pol1'"),
        (
            "WORKLOADS = (",
            "WORKLOADS = (1,",
            "smallnet.py: TypeError: WORKLOADS contains an object",
        ),
        ('"""', "", "smallnet.py: SyntaxError"),
    ],
)
def test_invalid_workload_file_is_named_in_the_error(
    folder, monkeypatch, original_text, replacement, words
):
    (folder / "networks/smallnet.py").write_text(MODULE.replace(original_text, replacement))
    monkeypatch.setenv("XFBENCH_WORKLOADS", str(folder / "networks"))
    with pytest.raises(WorkloadError, match=re.escape(words)):
        workloads()


def test_missing_workload_folder_gives_a_one_line_error(tmp_path):
    process = subprocess.run(
        [sys.executable, "-m", "xfbench", "workload", "list"],
        env={**os.environ, "XFBENCH_WORKLOADS": str(tmp_path / "nowhere")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 2
    assert process.stderr == (f"xfbench: XFBENCH_WORKLOADS: {tmp_path}/nowhere: no such folder\n")
