"""Readers of others' files, given files that a fuzzer makes up, and what it has found.

`make fuzz` takes ten minutes for each. What it found is in findings/ and is tried here.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import FINDINGS_FOLDER, TARGETS, build_tool_outputs
from xfbench.exchange import figures
from xfbench.exchange.formats import load_formats


@pytest.mark.parametrize("name", TARGETS)
def test_target_reads_its_seeds_without_unexpected_errors(name):
    """Else a fuzzer would begin with nothing, and hardly reach anything."""
    target = TARGETS[name]
    assert target.seeds
    readable = 0
    for content in target.seeds:
        target(content)
        try:
            target.read(content)
        except target.allowed:
            continue
        readable += 1
    assert readable or name in ("experiment", "tuning")  # a file's name, and its id, are not right


def test_every_format_of_another_tool_has_a_seed(tmp_path):
    recognising_formats = set()
    for number, content in enumerate(build_tool_outputs()):
        file = tmp_path / f"{number}.json"
        file.write_bytes(content)
        recognising_formats |= {
            file_format.TOOL
            for file_format in load_formats()
            if file_format.is_recognised(figures._read_file(file))
        }
    assert recognising_formats == {file_format.TOOL for file_format in load_formats()}


def test_make_test_all_fuzzes_every_target_for_ten_minutes():
    """`make -n` follows the call of make in the target."""
    command = ["make", "--no-print-directory", "-n", "test-all"]
    root = Path(__file__).parents[2]
    lines = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    [loop] = [
        number for number, line in enumerate(lines) if "import TARGETS; print(*TARGETS)" in line
    ]
    assert lines[loop].startswith("failed=0; for name in $(")
    assert "-m tests.fuzz $name 600 build/fuzz/$name || failed=1" in lines[loop + 1]
    assert "exit $failed" in lines[loop + 2]


@pytest.mark.deep
@pytest.mark.parametrize("name", TARGETS)
def test_fuzzer_finds_no_failing_input(name, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    seconds = TARGETS[name].seconds
    argv = [sys.executable, "-P", "-m", "tests.fuzz", name, str(seconds), str(tmp_path), "1"]
    completed = subprocess.run(
        argv,
        cwd=Path(__file__).parents[2],
        env={"PYTHONPATH": ".", "PATH": "/usr/bin:/bin", "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + 100,
        check=False,
    )
    findings = [path for path in tmp_path.iterdir() if path.is_file()]
    assert completed.returncode == 0 and not findings, (findings, completed.stderr[-3000:])
    assert len(list((tmp_path / "tried").iterdir())) > len(TARGETS[name].seeds)


@pytest.mark.parametrize(
    "file", sorted(FINDINGS_FOLDER.glob("*/*")), ids=lambda file: f"{file.parent.name}/{file.name}"
)
def test_earlier_fuzzer_findings_are_handled(file):
    """Within bounds of memory: the test above begins with it."""
    TARGETS[file.parent.name](file.read_bytes())
