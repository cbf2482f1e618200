"""Tests of the workflow in docs/github-actions: they run its steps as GitHub's runner does.

A change to an adapter in the checkout makes each step half a second slower. Actions that fetch and
store files are left out, because the workspace keeps the baseline between runs.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / "docs/github-actions/regression.yml").read_text())
SMALL = {"FRAMEWORKS": "reference", "WORKLOADS": "lenet", "BATCH_SIZE": "2"}
SMALL |= {"STEPS": "2", "LAUNCHES": "3"}
OFFLINE = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
SHELLS = {None: ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}
STEP = "    def step(self, batch: tuple[np.ndarray, np.ndarray]) -> None:\n"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A checkout whose reference sleeps half a second per step, and its own interpreter."""
    folder = tmp_path_factory.mktemp("workflow")
    checkout = folder / "checkout"
    for name in ("xfbench", "adapters", "workloads", "launchers"):
        shutil.copytree(ROOT / name, checkout / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    write_sleeping_adapter(checkout, 0.5)
    python = folder / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True, timeout=100)
    # Before Python 3.12 a new environment has a setuptools that is too old for the build.
    uninstall_command = [python, "-m", "pip", "--quiet", "uninstall", "--yes", "setuptools"]
    subprocess.run(uninstall_command, check=True, timeout=100, capture_output=True)
    [site_packages] = python.parent.parent.glob("lib/python*/site-packages")
    dependencies = folder / "dependencies"
    dependencies.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "xfbench" not in path.name and path.suffix != ".pth":
            (dependencies / path.name).symlink_to(path)
    (site_packages / "dependencies.pth").write_text(f"{dependencies}\n")
    return checkout, python.parent


def write_sleeping_adapter(checkout, seconds):
    train = checkout / "adapters/reference/train.py"
    lines = (ROOT / "adapters/reference/train.py").read_text()
    assert STEP in lines
    # Verification has the identity as dropout; it does not need to be slow.
    sleep_line = (
        f"        __import__('time').sleep({seconds} * (self.options.dropout == 'random'))\n"
    )
    train.write_text(lines.replace(STEP, STEP + sleep_line))


def run_workflow(workspace, event):
    """Run the steps as GitHub does; return their exit statuses and outputs by name."""
    checkout, programs = workspace
    shutil.rmtree(checkout / "results/change", ignore_errors=True)  # a new checkout has none
    [job] = WORKFLOW["jobs"].values()
    shell = SHELLS[WORKFLOW.get("defaults", {}).get("run", {}).get("shell")]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    environment |= {**job["env"], **SMALL, **OFFLINE, "PATH": f"{programs}:{os.environ['PATH']}"}
    environment |= {"GITHUB_EVENT_NAME": event}
    conditions = {None: True, "always()": True}
    conditions |= {f"github.event_name == '{name}'": name == event for name in WORKFLOW[True]}
    statuses, outputs, has_failed = {}, {}, False
    for step in job["steps"]:
        should_run = conditions[step.get("if")] and (not has_failed or step.get("if") == "always()")
        if "run" not in step or not should_run:
            continue
        (checkout / "step.sh").write_text(step["run"])
        process = subprocess.run(
            [*shell, "step.sh"],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        statuses[step["name"]] = 0 if step.get("continue-on-error") else process.returncode
        outputs[step["name"]] = process.stdout + process.stderr
        has_failed |= statuses[step["name"]] != 0
    return statuses, outputs


@pytest.mark.deep
def test_only_a_slower_adapter_fails_the_workflow(workspace):
    first_statuses, outputs = run_workflow(workspace, "push")
    assert not any(first_statuses.values()), outputs
    assert {"Install", "Measure", "Report", "Make it the baseline"} <= set(first_statuses)
    assert "Compare" not in first_statuses

    repeated_statuses, outputs = run_workflow(workspace, "pull_request")
    assert not any(repeated_statuses.values()), outputs
    assert "results/baseline" in outputs["Compare"]
    assert "Make it the baseline" not in repeated_statuses

    write_sleeping_adapter(workspace[0], 1)
    slower_statuses, outputs = run_workflow(workspace, "pull_request")
    assert {name for name, status in slower_statuses.items() if status} == {"Compare"}, outputs
    assert slower_statuses["Compare"] == 1
    assert "slower" in outputs["Compare"]
    assert slower_statuses["Report"] == 0
    assert (workspace[0] / "report.html").is_file()


def test_without_a_baseline_nothing_is_compared(tmp_path):
    [job] = WORKFLOW["jobs"].values()
    [compare] = [step for step in job["steps"] if step.get("name") == "Compare"]
    process = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", compare["run"]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "nothing to compare with yet" in process.stdout
