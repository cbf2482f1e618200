"""Output on terminals and pipes of any encoding, and system bytes that are not UTF-8."""

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import xfbench
from tests import debian
from tests.sample_records import SOFTWARE
from xfbench.host.machine import describe_machine
from xfbench.store.results_folder import Store

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN_1 = {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1"}
SMALL_RUN = (
    "run --framework reference --workload lenet --batch-size 2 --steps 2 --warmup 0 --launches 1"
)
deep = pytest.mark.deep


@pytest.fixture(scope="module")
def latin_1_locale(tmp_path_factory):
    """The variables of the locale en_US in ISO 8859-1, made by localedef."""
    folder = tmp_path_factory.mktemp("locales")
    sources = Path("/usr/share/i18n/locales/en_US")
    if not sources.exists() or not shutil.which("localedef", path=debian.PATH):
        reason = debian.install_missing(["locale-gen"], ["locales"])
        if reason:
            debian.skip_test(reason)
    command = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", folder / "en_US"]
    subprocess.run(command, check=True, capture_output=True)
    return {"LC_ALL": "en_US", "LOCPATH": str(folder), "PYTHONUTF8": "0"}


@pytest.fixture
def variables(request, encoding):
    """The environment variables that choose an encoding."""
    if encoding == "ascii":
        return ASCII
    return request.getfixturevalue("latin_1_locale") if encoding == "iso8859-1" else LATIN_1


@pytest.fixture
def run(record, tmp_path):
    """A function that runs a command beside some results; it returns exit status and bytes."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    fields = {"software": SOFTWARE, "machine": describe_machine()}
    for threads, seconds in ((1, 0.2), (2, 0.1)):
        for launch in range(1, 4):
            steps = (seconds * (1 + 0.001 * launch),)
            store.add(record(steps=steps, launch=launch, fields=fields, threads=threads))
    hidden = ("XFBENCH_RESULTS", "PYTHONIOENCODING", "LC_ALL", "PYTHONUTF8")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"TERM": "dumb", "COLUMNS": "100"}

    def run_command(words, variables, *, on_terminal=False, module="xfbench", **more):
        user_end, program_end = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", module, *words.split()],
            cwd=tmp_path,
            env={**environment, **variables, **more},
            stdin=subprocess.DEVNULL,
            stdout=program_end if on_terminal else subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            os.close(program_end)
            content = read_terminal(user_end) if on_terminal else process.stdout.read()
        os.close(user_end)
        return process.returncode, content

    return run_command


def read_terminal(descriptor):
    """Return all bytes that a program writes to its terminal."""
    content = b""
    try:
        while chunk := os.read(descriptor, 65536):
            content += chunk
    except OSError:  # the program has ended
        pass
    return content


def read_process_name(pid):
    """Return the bytes of a process's name, without the line end."""
    return Path(f"/proc/{pid}/comm").read_bytes().strip()


def keep_ascii_words(text):
    """Return the words of a text that are ASCII letters and digits only."""
    return [word for word in text.split() if word.isascii() and word.isalnum()]


@pytest.mark.case("Terminal that is not UTF-8")
@pytest.mark.parametrize(
    ("encoding", "words", "on_terminal"),
    [
        ("ascii", "leaderboard", True),
        pytest.param("latin-1", "leaderboard", True, marks=deep),
        pytest.param("iso8859-1", "leaderboard", False, marks=deep),
        pytest.param("ascii", "leaderboard --format html", False, marks=deep),
        pytest.param("ascii", "compare threads=2 threads=1", True, marks=deep),
        pytest.param("iso8859-1", "doctor", True, marks=deep),
        pytest.param("ascii", "run --steps none", False, marks=deep),
        pytest.param("iso8859-1", f"{SMALL_RUN} --dry-run", True, marks=deep),
    ],
)
def test_output_is_complete_in_any_encoding(run, encoding, variables, words, on_terminal):
    status, content = run(words, variables, on_terminal=on_terminal)
    expected_status, expected = run(words, {"LC_ALL": "C.UTF-8"}, on_terminal=on_terminal)
    assert status == expected_status
    text = content.decode(encoding)
    assert "bug in xfbench" not in text
    if words != "doctor":  # its figures change
        words_there = keep_ascii_words(text)
        missing = [word for word in keep_ascii_words(expected.decode()) if word not in words_there]
        assert missing == []


BENCHMARK = "--benchmark-only --xfbench-framework reference --xfbench-workload lenet"
BENCHMARK += f" --xfbench-steps 2 -p no:cacheprovider {Path(xfbench.__file__).parent}/benchmarks"
CALL = """
import xfbench
try:
    xfbench.run("reference", "lenet", threads=10**9)
except xfbench.UsageError as error:
    print(error)
for record in xfbench.run("reference", "lenet", batch_size=2, steps=2, warmup=0, launches=1):
    print(record.status, record.request.label().encode("ascii", "replace").decode())
print(len(xfbench.load("results").leaderboards()))
"""


@deep
@pytest.mark.case("Terminal that is not UTF-8")
@pytest.mark.parametrize(
    ("encoding", "module", "words", "on_terminal", "expected"),
    [
        ("iso8859-1", "xfbench", SMALL_RUN, True, ("images/s",)),
        ("ascii", "pytest", BENCHMARK, True, ("synthetic - float32", "1 passed")),
        ("ascii", "call", "", False, ("at most", "ok ", "environments ready")),
    ],
)
def test_progress_of_runs_is_legible_in_any_encoding(
    run, encoding, variables, module, words, on_terminal, expected, tmp_path
):
    """The live table of a terminal, pytest's own lines, and the lines of a call from Python."""
    (tmp_path / "call.py").write_text(CALL)
    live = {"TERM": "xterm"}
    status, content = run(words, variables, on_terminal=on_terminal, module=module, **live)
    text = content.decode(encoding)
    assert status == 0, text
    assert all(word in text for word in expected), text
    assert not re.search(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4})", text), text


@deep
@pytest.mark.case("Process name cut inside a character")
@pytest.mark.parametrize("variables", [{"LC_ALL": "C.UTF-8"}, ASCII])
def test_run_beside_a_process_whose_name_is_cut_inside_a_character(run, tmp_path, variables):
    executable = tmp_path / "process-name-tööö"
    shutil.copy(shutil.which("sleep"), executable)
    with subprocess.Popen([executable, "300"]) as sleeping:
        try:
            for _ in range(10_000):  # the system sets the name shortly after the start
                name = read_process_name(sleeping.pid)
                if name.startswith(b"process-name"):
                    break
                os.sched_yield()
            with pytest.raises(UnicodeDecodeError):
                name.decode()
            status, content = run(SMALL_RUN, variables)
        finally:
            sleeping.kill()
    assert status == 0, content.decode(errors="replace")
    assert b"images/s" in content


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        (b"b\xf6d", {"LC_ALL": "C.UTF-8"}),
        pytest.param("größe".encode(), ASCII, marks=deep),
        pytest.param("größe".encode(), {"LC_ALL": "C.UTF-8"}, marks=deep),
    ],
)
def test_results_folder_whose_name_cannot_be_decoded(run, tmp_path, name, variables):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    (tmp_path / "results").rename(folder)
    status, content = run(f"results list --results {folder}", variables)
    assert status == 0, content
    assert content.count(b"reference") + content.count(b"lenet") >= 6
