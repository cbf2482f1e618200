"""Tests of the command line: exit statuses, one-line errors, runs and their tables."""

import errno
import json
import os
import pty
import pwd
import shlex
import signal
import subprocess
import sys

import pytest

from xfbench.base import paths
from xfbench.execution import link_bandwidth
from xfbench.model import adapter, settings

SMALL = "--framework reference --workload lenet --batch-size 2 --steps 2 --warmup 0".split()


def test_help_names_every_command(run_inline):
    outcome = run_inline("--help")
    assert outcome.returncode == 0
    for command in (
        "run",
        "leaderboard",
        "tune",
        "predict",
        "trace",
        "workload",
        "framework",
        "env",
        "doctor",
    ):
        assert f"\n  {command} " in outcome.stdout


def test_version_is_printed_by_a_process(run_process):
    assert run_process("--version").stdout.startswith("xfbench ")


@pytest.mark.parametrize(
    "command", ["run", "tune", "trace", "leaderboard", "predict", "workload show", "env create"]
)
def test_command_help_has_an_example(run_inline, command):
    assert f"  xfbench {command}" in run_inline(*command.split(), "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("run --framework torhc", "did you mean torch"),
        ("run --workload lnet", "did you mean lenet"),
        ("run --framework torch --kernel onedn", "did you mean onednn"),
        ("run --framwork torch", "--framework"),
        ("run --threads two", "--threads two: 'two' is not a whole number"),
        ("run --launches 0", "launches"),
        ("run --pinning socket", "did you mean sockets"),
        ("run --pinning sockets --threads 4096", "--pinning sockets: 4096 threads need a socket"),
        ("run --pinning numa --threads 4096 --dry-run", "use --threads "),
        ("run --python torch", "NAME=PATH"),
        ("run --python torch=/nonexistent", "no such file"),
        ("run --workload lenet --epochs 2 --steps 2", "exactly one"),
        ("leaderboard --format pdf", "unknown format"),
        ("machine --read-size 64", "--read-size has no effect here: it needs --read"),
        ("machine --read . --links", "choose one"),
        ("data prepare digits --from .", "--from has no effect here"),
        ("data prepare digits --fit crop", "--fit crop has no effect here: it needs --size"),
        ("leaderboard --json --format csv", "two forms of output: choose one"),
        ("verify --json --format markdown", "two forms of output: choose one"),
        ("leaderboard --results nowhere", "xfbench run"),
        ("leaderboard --view speed", "slowdown"),
        ("leaderboard --by xyzzy", "framework_version"),
        ("leaderboard --by treads", "did you mean threads"),
        ("leaderboard --by workload", "--view slowdown"),
        ("leaderboard --reference torch", "--view slowdown"),
        ("workload show lenett", "did you mean lenet"),
        ("workload export lenet --format onnx", "choose from caffe, json"),
        ("env create torhc", "did you mean torch"),
        (
            "trace --framework torch --workload lenet --output nowhere/x.npz",
            "no such folder: nowhere",
        ),
        ("trace --workload lenet --output x.npz", "--framework"),
    ],
)
def test_invalid_arguments_give_one_line_and_exit_2(run_inline, arguments, words):
    outcome = run_inline(*arguments.split())
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr
    assert words in outcome.stderr


def test_the_end_of_a_file_within_xfbench_is_no_interruption(run_inline, monkeypatch):
    def fail():
        raise EOFError("compressed file ended early")

    monkeypatch.setattr(adapter, "list_names", fail)
    outcome = run_inline("framework", "list")
    assert outcome.returncode == 3
    assert "bug in xfbench: EOFError('compressed file ended early')" in outcome.stderr


def test_a_lost_file_server_is_no_closed_pipe(run_inline, monkeypatch):
    def fail():
        raise OSError(errno.ESHUTDOWN, "Cannot send after transport endpoint shutdown")

    monkeypatch.setattr(adapter, "list_names", fail)
    outcome = run_inline("framework", "list")
    assert outcome.returncode == 1
    assert "xfbench: Cannot send after transport endpoint shutdown" in outcome.stderr


@pytest.mark.parametrize("home", ["/proc", "/sys"])
def test_a_home_that_cannot_be_written_needs_another_cache(run_inline, monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    for name in ("XFBENCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    outcome = run_inline("run", *SMALL, "--launches=1", "--no-verify")
    assert outcome.returncode == 1
    assert f"xfbench: {home}/.cache: " in outcome.stderr
    assert "set XFBENCH_HOME to one" in outcome.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--data", "~nobody-here/set"),
        ("--python", "reference=~nobody-here/python"),
    ],
)
def test_home_of_an_unknown_user_is_no_bug(run_inline, words):
    outcome = run_inline("run", *SMALL, *words, "--dry-run")
    assert outcome.returncode == 2 and "~nobody-here" in outcome.stderr
    assert "no such user" in outcome.stderr


def test_a_user_without_a_home_is_told_to_set_one(run_inline, monkeypatch):
    def fail(uid):
        raise KeyError(uid)

    for name in ("HOME", "XFBENCH_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", fail)
    outcome = run_inline("run", *SMALL, "--dry-run")
    assert outcome.returncode == 2
    assert "xfbench: this user has no home folder: set HOME" in outcome.stderr


def test_too_little_memory_is_no_bug(run_inline, monkeypatch):
    def fail():
        raise MemoryError

    monkeypatch.setattr(adapter, "list_names", fail)
    outcome = run_inline("framework", "list")
    assert outcome.returncode == 1 and "may use no more memory" in outcome.stderr


def test_a_deleted_working_folder_is_no_bug(run_inline, tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    outcome = run_inline("doctor")
    assert outcome.returncode == 1 and "the working folder was deleted" in outcome.stderr


def test_a_process_exits_with_2_for_a_wrong_command(run_process):
    outcome = run_process("rnu")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    [line] = outcome.stderr.splitlines()
    assert "rnu" in line


def test_a_dry_run_prints_launches_and_writes_nothing(run_inline, tmp_path):
    brief = run_inline("run", "--dry-run")
    first, *cells = brief.stdout.splitlines()
    assert first.startswith("8 cells, 24 launches") and len(cells) == 8
    outcome = run_inline("run", "--dry-run", "--show-commands")
    outline, *commands = outcome.stdout.split("\n\n")
    assert sorted(outline.splitlines()) == sorted([first, *cells])
    assert len(commands) == 8 and all(command.startswith("# ") for command in commands)
    assert all(len(command.splitlines()) == 2 for command in commands)  # not one per launch
    assert not list(tmp_path.iterdir())


def test_a_dry_run_has_a_command_for_each_cell(run_inline):
    words = "run -f reference -w lenet --batch-size 8,16 --launches 1 --dry-run --show-commands"
    assert run_inline(*words.split()).stdout.count("\n# ") == 2


def test_commands_are_shown_only_by_a_dry_run(run_inline):
    outcome = run_inline(*"run -f reference -w lenet --show-commands".split())
    assert outcome.returncode == 2 and "--show-commands needs --dry-run" in outcome.stderr


def test_the_help_of_run_groups_its_options(run_inline):
    lines = run_inline("run", "--help").stdout.splitlines()
    titles = [line[:-1] for line in lines if line[:1].isalpha() and line.endswith(":")]
    assert titles == [*settings.PANELS, "Options"]


def test_a_dry_run_of_a_bundle_writes_nothing(run_inline, tmp_path):
    outcome = run_inline(*"run --workload lenet --launches 2 --bundle away --dry-run".split())
    assert outcome.returncode == 0, outcome.stderr
    assert len(outcome.stdout.splitlines()) == 4
    assert not list(tmp_path.iterdir())


def test_a_run_ends_with_a_table_and_keeps_its_records(measured_run):
    table, folder = measured_run
    assert "reference" in table and "2 (smoke)" in table
    assert len(list((folder / "records").rglob("*.json"))) == 2


def test_the_leaderboard_ranks_a_verified_run(run_inline, results):
    [row] = json.loads(run_inline("leaderboard", "--json").stdout)["tables"][0]["rows"]
    assert row["images_per_second"]["launches"] == 2
    ids = {f"sha256:{file.stem}" for file in (results / "certificates").iterdir()}
    assert ids == {row["certificate"], row["batch_certificate"]} and len(ids) == 2


def test_the_leaderboard_groups_rows_by_fields(run_inline, results):
    document = json.loads(run_inline(*"leaderboard --by machine,framework --json".split()).stdout)
    [row] = document["tables"][0]["rows"]
    assert row["configurations"] == 1 and row["group"]["framework"] == "reference"


def test_the_leaderboard_has_slowdowns_and_latex(run_inline, results):
    document = json.loads(run_inline(*"leaderboard --view slowdown --json".split()).stdout)
    [row] = document["slowdowns"][0]["rows"]
    assert row["networks"][0]["slowdown"]["value"] == 1
    assert document["slowdowns"][0]["reference"] == "reference"
    outcome = run_inline(*"leaderboard --view slowdown --reference torhc".split())
    assert outcome.returncode == 2 and "unknown reference 'torhc'" in outcome.stderr
    outcome = run_inline(*"leaderboard --view slowdown --by threads --format latex".split())
    assert "\\toprule" in outcome.stdout
    first, *lines = run_inline(
        *"leaderboard --published --format latex".split()
    ).stdout.splitlines()
    assert first.startswith("% In the preamble: \\usepackage{booktabs,siunitx}")
    # A small font ends with its note.
    notes = [line for line in lines if "footnotesize" in line]
    assert notes and all(line.startswith("{") and line.endswith("\\par}") for line in notes)


def test_json_output_is_one_document_of_the_new_launches(run_process, results):
    outcome = run_process("run", *SMALL, *"--launches 3 --resume --json".split())
    document = json.loads(outcome.stdout)
    assert document["summary"] == {"ok": 1}
    [record] = document["records"]
    assert record["schema"] == "xfbench.record/1" and record["request"]["launch"] == 3
    assert len(list((results / "records").rglob("*.json"))) == 3


def test_a_resumed_run_ends_with_a_table_of_all_its_launches(run_process, results):
    outcome = run_process("run", *SMALL, *"--launches 3 --resume".split())
    assert outcome.returncode == 0, outcome.stderr
    assert "3 (indicative)" in outcome.stdout and "(1 new)" in outcome.stdout
    assert "a second session of the same cells" in outcome.stderr


def test_an_unverified_run_is_not_ranked(run_process, measured_run, tmp_path):
    home = tmp_path / "home"  # a cache without certificates
    home.mkdir()
    for name in ("canary", "peaks"):
        (home / name).symlink_to(paths.cache() / name)
    outcome = run_process("run", *SMALL, "--launches", "1", "--no-verify", XFBENCH_HOME=str(home))
    assert outcome.returncode == 0, outcome.stderr
    assert "1 cell, 1 launch, time unknown" in outcome.stderr  # announced before it starts
    assert "not ranked" in outcome.stdout and "no equality certificate" in outcome.stdout
    assert not (tmp_path / "results" / "certificates").exists()


def test_a_broken_framework_is_unavailable_and_others_run(run_process, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 1\n")
    broken.chmod(0o755)
    outcome = run_process(
        *"run --framework torch,reference --workload lenet --batch-size 2 --steps 2".split(),
        *("--warmup", "0", "--launches", "1", "--no-verify", "--json"),
        *("--python", f"torch={broken}"),
    )
    document = json.loads(outcome.stdout)
    assert outcome.returncode == 1
    assert document["summary"] == {"ok": 1, "unavailable": 1}
    [reason] = [r["reason"] for r in document["records"] if r["status"] == "unavailable"]
    assert "no such library" in reason


def test_impossible_cell_is_unsupported_and_exits_with_0(run_inline):
    outcome = run_inline(
        *"run --framework reference --workload alexnet --data digits --launches 2".split(),
        *"--no-verify --json".split(),
    )
    document = json.loads(outcome.stdout)
    assert outcome.returncode == 0, outcome.stderr
    assert document["summary"] == {"unsupported": 1}
    assert "one-channel" in document["records"][0]["reason"]


def test_interrupt_keeps_records_and_exits_with_130(tmp_path):
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "xfbench", "run", *SMALL),
            *("--no-verify", "--launches", "200"),
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Background sessions ignore interrupts, and their children inherit this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    for line in process.stderr:
        if line.startswith("2/200"):
            process.send_signal(signal.SIGINT)
            break
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in errors
    record_count = len(list((tmp_path / "results" / "records").rglob("*.json")))
    assert 2 <= record_count < 200


@pytest.mark.parametrize("awaited", [b"", b"launches"])
def test_a_terminal_that_goes_away_loses_no_record(awaited, tmp_path):
    """As after a lost connection, with nohup. The bar ignores that it cannot write."""
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "xfbench", "run", *SMALL, "--no-verify", "--launches", "4"],
        cwd=tmp_path,
        stderr=stderr,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(stderr)
    shown = b""
    while awaited not in shown:
        shown += os.read(terminal, 1000)
    os.close(terminal)
    process.wait(timeout=120)
    assert len(list((tmp_path / "results" / "records").rglob("*.json"))) == 4


def test_a_reader_of_progress_that_goes_away_loses_no_record(tmp_path):
    """Lines that nobody reads raise BrokenPipeError in the listener."""
    process = subprocess.Popen(
        [sys.executable, "-m", "xfbench", "run", *SMALL, "--no-verify", "--launches", "4"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    process.stderr.readline()
    process.stderr.close()
    assert process.wait(timeout=120) == 0
    assert len(list((tmp_path / "results" / "records").rglob("*.json"))) == 4


def test_machine_and_doctor_print_json(run_inline):
    assert json.loads(run_inline("machine", "--json").stdout)["cores"] >= 1
    findings = json.loads(run_inline("doctor", "--json").stdout)["findings"]
    assert {"load", "processes", "steal", "swap"} <= {finding["check"] for finding in findings}
    assert all(finding["state"] in ("ok", "warn", "bad") for finding in findings)


def test_machine_links_measures_the_memory_of_this_host(run_inline, monkeypatch):
    monkeypatch.setattr(link_bandwidth, "_MAX_COPY_BYTES", 2**24)
    [first, *_] = json.loads(run_inline("machine", "--links", "--json").stdout)["links"]
    assert first["kind"] == "memory" and first["bytes_per_second"]["value"] > 0
    shown = run_inline("machine", "--links").stdout
    assert "GB/s" in shown and "Each copied byte counts once." in shown


def test_workload_show_has_every_layer(run_inline):
    description = json.loads(run_inline("workload", "show", "alexnet", "--json").stdout)
    assert description["parameters"] == 60_965_224
    assert {"name", "digest", "input_shape", "classes", "solver", "layers"} <= set(description)
    [fc6] = [layer for layer in description["layers"] if layer["name"] == "fc6"]
    assert fc6["parameters"] == {"weight": [4096, 9216], "bias": [4096]}


def test_framework_list_has_the_state_of_each(run_process, tmp_path):
    outcome = run_process("framework", "list", "--json", XFBENCH_HOME=str(tmp_path / "empty"))
    frameworks = {
        framework["name"]: framework for framework in json.loads(outcome.stdout)["frameworks"]
    }
    assert frameworks.pop("reference")["state"] == "installed"
    assert all(
        framework["state"] in ("available", "unavailable") for framework in frameworks.values()
    )
    assert all(
        framework["reason"]
        for framework in frameworks.values()
        if framework["state"] == "unavailable"
    )


def test_closed_standard_error_does_not_spoil_the_document(tmp_path):
    command = [sys.executable, "-m", "xfbench", "run", *SMALL, "--no-verify", "--launches", "1"]
    completed = subprocess.run(
        ["sh", "-c", f"{shlex.join([*command, '--json'])} 2>&-"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(completed.stdout)["summary"] == {"ok": 1}


def test_verify_refuses_a_folder_without_results_at_once(run_inline, tmp_path):
    (tmp_path / "typo").mkdir()
    outcome = run_inline(*"verify --workload lenet --dry-run --results typo".split())
    assert outcome.returncode == 2 and "typo has no results" in outcome.stderr
