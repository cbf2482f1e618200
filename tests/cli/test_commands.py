"""The command line, as a person uses it: real processes, exit statuses, one-line errors."""

import json
import subprocess
import sys

import pytest


def test_help_names_every_command_and_version_the_version(xfbench):
    shown = xfbench("--help")
    assert shown.returncode == 0
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
        assert f"\n  {command} " in shown.stdout
    assert xfbench("--version").stdout.startswith("xfbench ")


@pytest.mark.parametrize(
    "command", ["run", "tune", "trace", "leaderboard", "predict", "workload show", "env create"]
)
def test_help_of_a_command_has_an_example(xfbench, command):
    assert f"  xfbench {command}" in xfbench(*command.split(), "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("run --framework torhc", "did you mean torch"),
        ("run --workload lnet", "did you mean lenet"),
        ("run --framework torch --kernel onedn", "did you mean onednn"),
        ("run --framwork torch", "--framework"),
        ("run --threads two", "--threads two: 'two' is not a whole number"),
        ("run --launches 0", "launches"),
        ("run --python torch", "NAME=PATH"),
        ("run --python torch=/nonexistent", "no such file"),
        ("run --workload lenet --epochs 2 --steps 2", "exactly one"),
        ("leaderboard --format pdf", "unknown format"),
        ("leaderboard --results nowhere", "xfbench run"),
        ("leaderboard --columns speed", "slowdown"),
        ("leaderboard --by xyzzy", "framework_version"),
        ("leaderboard --by treads", "did you mean threads"),
        ("leaderboard --by workload", "--columns slowdown"),
        ("workload show lenett", "did you mean lenet"),
        ("workload export lenet --format onnx", "unknown format"),
        ("env create torhc", "did you mean torch"),
        ("trace --framework torch --workload lenet --output nowhere/x.npz", "no such folder"),
        ("trace --workload lenet --output x.npz", "--framework"),
        ("rnu", "rnu"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(xfbench, arguments, words):
    shown = xfbench(*arguments.split())
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert len(shown.stderr.strip().splitlines()) == 1, shown.stderr
    assert words in shown.stderr


def test_a_dry_run_says_what_would_run_and_makes_nothing(xfbench, tmp_path):
    shown = xfbench("run", "--dry-run")
    launches, *commands = shown.stdout.split("\n\n")
    assert len(launches.splitlines()) == 24
    assert len(commands) == 8 and all(one.startswith("# ") for one in commands)
    assert not list(tmp_path.iterdir())


def test_a_dry_run_of_what_is_to_be_carried_writes_nothing(xfbench, tmp_path):
    shown = xfbench(*"run --workload lenet --launches 2 --carry away --dry-run".split())
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout.splitlines()) == 8
    assert not list(tmp_path.iterdir())


def test_a_run_ends_with_a_table_and_records_and_the_leaderboard_shows_them_again(
    xfbench, tmp_path
):
    shown = xfbench(
        *"run --framework reference --workload lenet --batch-size 4 --steps 2 --launches 2".split()
    )
    assert shown.returncode == 0, shown.stderr
    assert "reference" in shown.stdout and "2 (smoke)" in shown.stdout
    assert len(list((tmp_path / "results" / "records").rglob("*.json"))) == 2
    again = json.loads(xfbench("leaderboard", "--json").stdout)
    [row] = again["tables"][0]["rows"]
    assert row["images_per_second"]["launches"] == 2
    [certificate] = (tmp_path / "results" / "certificates").iterdir()
    assert row["certificate"] == f"sha256:{certificate.stem}"
    by = json.loads(xfbench(*"leaderboard --by machine,framework --json".split()).stdout)
    [row] = by["tables"][0]["rows"]
    assert row["configurations"] == 1 and row["group"]["framework"] == "reference"
    slow = json.loads(xfbench(*"leaderboard --columns slowdown --json".split()).stdout)
    [row] = slow["slowdowns"][0]["rows"]
    assert row["networks"][0]["slowdown"]["value"] == 1
    shown = xfbench(*"leaderboard --columns slowdown --by threads --format latex".split())
    assert "\\toprule" in shown.stdout


def test_what_was_not_verified_is_not_ranked(xfbench, tmp_path):
    options = "run --framework reference --workload convnet-quick --batch-size 4 --steps 2"
    shown = xfbench(*options.split(), "--launches", "1", "--no-verify")
    assert shown.returncode == 0, shown.stderr
    assert "not ranked" in shown.stdout and "no equality certificate" in shown.stdout
    assert not (tmp_path / "results" / "certificates").exists()


def test_with_json_standard_output_is_one_document(xfbench):
    shown = xfbench(
        *"run --framework reference --workload lenet --batch-size 4 --steps 2 --launches 1".split(),
        "--json",
    )
    document = json.loads(shown.stdout)
    assert document["summary"] == {"ok": 1}
    assert document["records"][0]["schema"] == "xfbench.record/1"


def test_a_framework_that_cannot_be_had_is_unavailable_and_the_others_run(xfbench, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 1\n")
    broken.chmod(0o755)
    shown = xfbench(
        *"run --framework torch,reference --workload lenet --batch-size 4 --steps 2".split(),
        *("--launches", "1", "--json", "--python", f"torch={broken}"),
    )
    document = json.loads(shown.stdout)
    assert shown.returncode == 1
    assert document["summary"] == {"ok": 1, "unavailable": 1}
    [reason] = [r["reason"] for r in document["records"] if r["status"] == "unavailable"]
    assert "no such library" in reason


def test_a_cell_a_framework_cannot_do_is_unsupported_and_no_failure(xfbench):
    shown = xfbench(
        *"run --framework reference --workload alexnet --data digits --launches 2".split(),
        *"--no-verify --json".split(),
    )
    document = json.loads(shown.stdout)
    assert shown.returncode == 0, shown.stderr
    assert document["summary"] == {"unsupported": 1}
    assert "one-channel" in document["records"][0]["reason"]


def test_an_interrupt_keeps_what_is_done_and_exits_130(tmp_path):
    import signal

    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "xfbench", "run", "--framework", "reference"),
            *("--workload", "lenet", "--batch-size", "4", "--steps", "2", "--launches", "200"),
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A session that runs in the background ignores interrupts, and so would this child.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    for line in process.stderr:
        if line.startswith("2/200"):
            process.send_signal(signal.SIGINT)
            break
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in errors
    kept = len(list((tmp_path / "results" / "records").rglob("*.json")))
    assert 2 <= kept < 200


def test_machine_and_doctor_speak_json(xfbench):
    assert json.loads(xfbench("machine", "--json").stdout)["cores"] >= 1
    findings = json.loads(xfbench("doctor", "--json").stdout)["findings"]
    assert {"load", "processes", "steal", "swap"} <= {finding["check"] for finding in findings}
    assert all(finding["state"] in ("ok", "warn", "bad") for finding in findings)


def test_workload_show_has_every_layer_and_the_fixed_names(xfbench):
    shown = json.loads(xfbench("workload", "show", "alexnet", "--json").stdout)
    assert shown["parameters"] == 60_965_224
    assert {"name", "digest", "input_shape", "classes", "solver", "layers"} <= set(shown)
    [fc6] = [layer for layer in shown["layers"] if layer["name"] == "fc6"]
    assert fc6["parameters"] == {"weight": [4096, 9216], "bias": [4096]}


def test_framework_list_knows_the_state_of_each(xfbench, tmp_path):
    shown = xfbench("framework", "list", "--json", XFBENCH_HOME=str(tmp_path / "empty"))
    found = {one["name"]: one for one in json.loads(shown.stdout)["frameworks"]}
    assert found.pop("reference")["state"] == "installed"
    assert all(one["state"] in ("available", "unavailable") for one in found.values())
    assert all(one["reason"] for one in found.values() if one["state"] == "unavailable")
