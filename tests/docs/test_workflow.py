"""Test of the workflow in docs/github-actions: it runs the steps as GitHub's runner does.

The adapter of the base sleeps half a second in each step, and that of the change the same or more.
Both are commits of one clone. Actions, which fetch and store files, are left out.
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
SMALL |= {"STEPS": "2", "LAUNCHES": "3", "MUST_FIND": "50%"}
OFFLINE = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
SHELLS = {None: ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}
STEP = "    def step(self, batch: tuple[np.ndarray, np.ndarray]) -> None:\n"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """The workspace of the runner: a clone with the tag `base`."""
    folder = tmp_path_factory.mktemp("workflow")
    for name in ("xfbench", "adapters", "workloads", "launchers"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    (folder / "requirements").mkdir()
    (folder / "requirements/xfbench.lock").touch()  # `add_dependencies` gives the packages
    run_git(folder, "init", "--quiet")
    commit_sleeping_adapter(folder, 0.5)
    run_git(folder, "tag", "base")
    return folder


def run_git(folder, *words):
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    command = ["git", "-C", folder, *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit_sleeping_adapter(folder, seconds):
    write_sleeping_adapter(folder, seconds)
    run_git(folder, "add", "xfbench", "adapters", "workloads", "launchers", "pyproject.toml")
    run_git(folder, "commit", "--quiet", "--allow-empty", "--message", f"sleep {seconds} s")


def write_sleeping_adapter(checkout, seconds):
    train = checkout / "adapters/reference/train.py"
    lines = (ROOT / "adapters/reference/train.py").read_text()
    assert STEP in lines
    # Verification has the identity as dropout; it does not need to be slow.
    sleep_line = (
        f"        __import__('time').sleep({seconds} * (self.options.dropout == 'random'))\n"
    )
    train.write_text(lines.replace(STEP, STEP + sleep_line))


def add_dependencies(workspace):
    """Add what this interpreter has installed, except xfbench, to the new environment."""
    dependencies = workspace / "dependencies"
    dependencies.mkdir(exist_ok=True)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        link = dependencies / path.name
        if "xfbench" not in path.name and path.suffix != ".pth" and not link.exists():
            link.symlink_to(path)
    python = workspace / ".venv/bin/python"
    # Before Python 3.12 a new environment has a setuptools that is too old for the build.
    uninstall_command = [python, "-m", "pip", "--quiet", "uninstall", "--yes", "setuptools"]
    subprocess.run(uninstall_command, check=True, timeout=100, capture_output=True)
    [site_packages] = python.parent.parent.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(f"{dependencies}\n")


def run_workflow(workspace, home):
    """Run the steps as GitHub does; return their exit statuses and outputs by name.

    `home` is the cache.
    """
    shutil.rmtree(workspace / "results", ignore_errors=True)  # a new workspace has none
    [job] = WORKFLOW["jobs"].values()
    shell = SHELLS[WORKFLOW.get("defaults", {}).get("run", {}).get("shell")]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    programs = Path(sys.executable).parent
    environment |= {**job["env"], **SMALL, **OFFLINE, "PATH": f"{programs}:{os.environ['PATH']}"}
    environment |= {"BASE": run_git(workspace, "rev-parse", "base"), "XFBENCH_HOME": str(home)}
    environment["GITHUB_STEP_SUMMARY"] = str(workspace / "summary.md")
    statuses, outputs, has_failed = {}, {}, False
    for step in job["steps"]:
        is_always = {None: False, "always()": True}[step.get("if")]
        if "run" not in step or (has_failed and not is_always):
            continue
        (workspace / "step.sh").write_text(step["run"])
        process = subprocess.run(
            [*shell, "step.sh"],
            cwd=workspace,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if step["name"] == "Make the environment":
            add_dependencies(workspace)
        statuses[step["name"]] = 0 if step.get("continue-on-error") else process.returncode
        outputs[step["name"]] = process.stdout + process.stderr
        has_failed |= statuses[step["name"]] != 0
    return statuses, outputs


@pytest.mark.deep
def test_only_a_slower_adapter_fails_the_workflow(workspace, certifying_home):
    commit_sleeping_adapter(workspace, 0.5)
    statuses, outputs = run_workflow(workspace, certifying_home)
    assert not any(statuses.values()), outputs
    assert {"Install", "Measure both in turns", "Compare", "Report"} <= set(statuses)
    assert "would have been found" in outputs["Compare"]

    commit_sleeping_adapter(workspace, 1)
    statuses, outputs = run_workflow(workspace, certifying_home)
    assert {name for name, status in statuses.items() if status} == {"Compare"}, outputs
    assert statuses["Compare"] == 1
    assert "is slower" in outputs["Compare"]
    summary = (workspace / "summary.md").read_text()
    assert summary.startswith("**Training speed: FAIL (slower:5%, must find 50.0%): 1 slower**\n")
    assert statuses["Report"] == 0
    assert (workspace / "report.html").is_file()


def test_packages_are_installed_from_the_lock():
    [job] = WORKFLOW["jobs"].values()
    installs = [
        line.split(" install ")[1]
        for step in job["steps"]
        for line in step.get("run", "").splitlines()
        if " install " in line
    ]
    assert installs == [
        "--require-hashes --only-binary :all: --requirement requirements/xfbench.lock",
        "--no-deps --no-build-isolation --editable .",
    ]
    assert "setuptools==" in (ROOT / "requirements/xfbench.lock").read_text()  # builds xfbench


def test_no_stranger_runs_code_on_the_own_machine():
    """The runner is a person's own machine, and a fork's pull request is code of a stranger."""
    triggers = WORKFLOW[True]  # YAML reads the key `on` as true
    assert triggers == "pull_request"
    assert WORKFLOW["permissions"] == {"contents": "read"}
    same_repository = "github.event.pull_request.head.repo.full_name == github.repository"
    for job in WORKFLOW["jobs"].values():
        assert "self-hosted" in job["runs-on"]
        assert job["if"] == same_repository
        assert not any("permissions" in part for part in (job, *job["steps"]))
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
    text = (ROOT / "docs/github-actions/regression.yml").read_text()
    assert "WARNING: a run executes the pull request's code on your machine" in text
    page = (ROOT / "docs/regression.md").read_text()
    assert "code on your machine" in " ".join(page.split())
