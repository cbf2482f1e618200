"""Invalid user files and names give a one-line error before any launch starts.

Mistakes in settings are in tests/planning/test_experiment.py and tests/host/test_sites.py, damaged
data sets in tests/datasets and tests/worker/test_data_set_formats.py.
"""

import json
import os
import subprocess
import sys

import pytest

from xfbench.base.errors import UsageError
from xfbench.host import sites
from xfbench.model import adapter
from xfbench.planning import experiment
from xfbench.worker import prepared
from xfbench.worker.formats import Damaged

CONTENTS = {
    "empty": b"",
    "not TOML": b"name = \n",
    "not text": b"name = '\xff\xfe'\n",
    "NULs": b"\0" * 100,
    "too deeply nested": b"x = " + b"[" * 50_000,
    "too long a number": b"x = " + b"9" * 5_000,
    "impossible date": b"x = 2026-02-30\n",
    "too large": b"#" * (2**20 + 1),
    "a NUL in a text": b'name = "a\\u0000b"\n',
    "a NUL in a name": b'[x."a\\u0000b"]\n',
    "deep keys": b"x" + b".x" * 100_000 + b" = 1\n",
    "wrong types": b"name = 1\ntitle = []\nmatrix = 3\n",
}
READERS = {
    "experiment": lambda file: experiment.load(str(file)),
    "site": lambda file: sites.load_site(str(file)),
    "adapter": lambda file: adapter.load(file.parent.name),
}


def read_error(reader, file):
    with pytest.raises(UsageError) as caught:
        READERS[reader](file)
    message = str(caught.value)
    assert message.startswith(str(file)) and len(message.splitlines()) == 1
    assert len(message) < len(str(file)) + 300
    return message


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Yield the path of an adapter's file, which also serves for the other kinds of files."""
    monkeypatch.setenv("XFBENCH_ADAPTERS", str(tmp_path))
    (tmp_path / "mine").mkdir()
    yield tmp_path / "mine" / "adapter.toml"
    sites.load_site.cache_clear()


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("reader", READERS)
def test_invalid_file_content_is_reported_in_one_line(reader, content, file):
    file.write_bytes(CONTENTS[content])
    read_error(reader, file)


@pytest.mark.parametrize("name", ["", "A=B", "A\\nB", "A\\u0000"])
def test_site_with_an_impossible_variable_is_refused(file, name):
    file.write_text(f'[variables]\n"{name}" = "x"\n')
    read_error("site", file)


@pytest.mark.parametrize("reader", ["site", "adapter"])
def test_named_pipe_as_an_input_file_is_refused(reader, file):
    os.mkfifo(file)
    assert "not a plain file" in read_error(reader, file)
    file.unlink()
    file.mkdir()
    read_error(reader, file)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"launches": 10**7}, "10,000,000 launches are too many: at most 1,000,000"),
        ({"ranks": [10**6], "scaling": "weak"}, "1,000,000 ranks are too many"),
        ({"seed": list(range(200_000))}, "200,000 cells are too many: at most 100,000"),
    ],
)
def test_excessive_counts_are_refused_before_cells_are_built(settings, message):
    matrix = experiment.build_matrix(framework=["reference"], workload=["lenet"], **settings)
    with pytest.raises(UsageError, match=message):
        experiment.expand_matrices([matrix])


NAMES = [
    "with space",
    "quo'te\"d",
    "$(touch x)`touch x`;touch x",
    "new\nline",
    "..",
    "-rf",
    "ü\u202e",
    os.fsdecode(b"\xff"),
]


@pytest.mark.parametrize("name", NAMES)
def test_results_folder_of_any_name_supports_a_repeat_run(
    name, run_arguments, run_inline, tmp_path
):
    results = tmp_path / "in" / name / "results"
    (tmp_path / "in").mkdir()
    completed = run_inline(*run_arguments(), f"--results={results}")
    assert completed.returncode == 0, completed.stderr
    [run_folder] = (results / "runs").iterdir()
    subprocess.run([run_folder / "command.sh"], check=True, timeout=60, cwd=tmp_path / "in")
    assert json.loads((run_folder / "reply-again.json").read_bytes())["status"] == "ok"
    completed = run_inline("results", "validate", str(results))
    assert completed.returncode == 0, completed.stdout
    assert "\u202e" not in completed.stdout + completed.stderr
    assert not list(tmp_path.rglob("x"))


def test_interpreter_of_any_name_supports_a_repeat_run(run_arguments, run_inline, tmp_path):
    interpreter = tmp_path / os.fsdecode(b"\xff '$(touch x)")
    interpreter.symlink_to(sys.executable)
    completed = run_inline(*run_arguments(), f"--python=odd={interpreter}")
    assert completed.returncode == 0, completed.stderr
    [command] = (tmp_path / "results" / "runs").glob("*/command.sh")
    assert b"/\xff " in command.read_bytes()
    subprocess.run([command], check=True, timeout=60, cwd=tmp_path)
    assert not list(tmp_path.rglob("x"))


def test_results_behind_a_link_are_written_to_its_target(run_arguments, run_inline, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "there")
    assert run_inline(*run_arguments(), "--results=results").returncode == 0
    assert len(list((tmp_path / "there").glob("records/*/*.json"))) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[" * 10**5,
        b"[]",
        b'{"schema": 1}',
        b'{"schema": "xfbench.data/1", "format": [], "splits": {}}',
        b'{"schema": "xfbench.data/1", "format": "raw", "splits": 7}',
        b'{"schema": "xfbench.data/1", "format": "raw", "splits": {"train": 1}, "classes": 3}',
    ],
)
def test_invalid_manifest_is_reported_as_damage(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(Damaged):
        prepared.open_prepared(tmp_path)


def test_invalid_sample_list_is_reported_as_damage(tmp_path):
    split = {"samples": 1, "stream_digest": "sha256:0"}
    manifest = {"schema": "xfbench.data/1", "format": "raw", "splits": {"train": split}}
    document = {**manifest, "classes": ["a"], "shape": [1, 2, 2]}
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    for content in (b"", b"\xff\n", b"a\n", b"a\tb\tc\n", b"a\t" + b"9" * 5000 + b"\tc\n"):
        (tmp_path / "train.samples").write_bytes(content)
        with pytest.raises(Damaged):
            prepared.open_prepared(tmp_path)


def test_framework_output_is_printed_without_control_characters(run_arguments, run_inline):
    lines = "raise RuntimeError('\\x1b[2J\\u202ecod.exe\\x07')"
    completed = run_inline(*run_arguments(lines))
    assert completed.returncode == 1
    assert "RuntimeError" in completed.stderr
    assert not {"\x1b", "\u202e", "\x07"} & set(completed.stdout + completed.stderr)


def test_command_line_control_characters_are_escaped(run_inline):
    completed = run_inline("run", "--framework", "\x1b[31mtorch\u202e")
    assert completed.returncode == 2
    assert "\\x1b" in completed.stderr and not {"\x1b", "\u202e"} & set(completed.stderr)
    for arguments in (
        ["run", "--\x1b[31mx\u202e"],
        ["report", "--results=/nowhere/\x1b[31mx\u202e"],
    ):
        completed = run_inline(*arguments)
        assert completed.returncode == 2
        assert "\\x1b" in completed.stderr and not {"\x1b", "\u202e"} & set(completed.stderr)
