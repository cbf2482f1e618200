"""Names that the shell completes."""

import subprocess
import sys
from pathlib import Path

import pytest

from xfbench.cli import completion


@pytest.mark.parametrize(
    ("complete", "incomplete", "expected"),
    [
        (completion.complete_frameworks, "tor", ["torch"]),
        (completion.complete_frameworks, "torch,mx", ["torch,mxnet"]),
        (completion.complete_workloads, "resnet1", ["resnet101"]),
        (completion.complete_sites, "stamp", ["stampede2"]),
        (completion.complete_studies, "thread-s", ["thread-sweep"]),
        (completion.complete_frameworks, "x", []),
    ],
)
def test_last_name_of_a_list_is_completed(complete, incomplete, expected):
    assert complete(incomplete) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("run --framework torch,mx", "torch,mxnet"),
        ("run --device cu", "cuda"),
        ("run -w resnet1", "resnet101"),
        ("study show thread-s", "thread-sweep"),
    ],
)
def test_bash_gets_the_completed_word(words, expected):
    completed = subprocess.run(
        [Path(sys.executable).with_name("xfbench")],
        env={
            "_XFBENCH_COMPLETE": "complete_bash",
            "COMP_WORDS": f"xfbench {words}",
            "COMP_CWORD": str(len(words.split())),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.stdout.split() == [expected], completed.stderr
