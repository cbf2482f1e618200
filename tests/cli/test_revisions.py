"""`run --revisions` and named interpreters: launches in turns, records, comparison and refusals.

The revisions are commits of a repository with a copy of this checkout's code that measures. Their
steps sleep, so that a slower revision is certainly slower.
"""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import fake_framework
from xfbench.base import revisions
from xfbench.environments import worker_archive
from xfbench.equality import certify
from xfbench.execution import job_queue
from xfbench.model import certificate
from xfbench.model.plan import Plan
from xfbench.planning import plan_builder
from xfbench.store.results_folder import Store

ROOT = Path(__file__).parents[2]
STEP = "            self.trainer.step(self.batch)\n"
TINY = "--workload lenet --batch-size 2 --threads 1 --steps 2 --warmup 0".split()
REFERENCE = ["--framework", "reference", *TINY]


class Repository:
    """A git repository with the code that measures. A commit has a tag and replaces texts."""

    def __init__(self, folder):
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("adapters", "workloads", "xfbench/worker"):
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        shutil.copy(ROOT / "xfbench/__init__.py", folder / "xfbench")
        self.git("init", "--quiet")

    def git(self, *words):
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        command = ["git", "-C", self.folder, *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def replace(self, name, old, new):
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))

    def commit(self, tag, *replacement):
        """Commit the replacement, tag the commit, return its hash, and check out the base."""
        if replacement:
            self.replace(*replacement)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", tag)
        self.git("tag", tag)
        commit = self.git("rev-parse", "HEAD")
        self.git("checkout", "--quiet", "base")
        return commit


def sleep_in_steps(seconds):
    return f"{STEP}            __import__('time').sleep({seconds})\n"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A repository whose steps sleep 0.1 s, with the tag `base`, and tags of other commits."""
    repository = Repository(tmp_path_factory.mktemp("clone"))
    loop = "xfbench/worker/loop.py"
    repository.replace(loop, STEP, sleep_in_steps(0.1))
    repository.commit("base")
    repository.commit("slow", loop, "sleep(0.1)", "sleep(0.2)")
    (repository.folder / "README.md").write_text("# A change that measures nothing\n")
    repository.commit("same")
    repository.commit("no-min-time", loop, '"min_seconds"', '"seconds"')
    repository.commit("other-reply", loop, '"step_seconds"', '"steps"')
    repository.commit(
        "other-check", "xfbench/worker/check.py", '"unsupported": unsupported', '"refused": {}'
    )
    repository.commit("no-torch", "adapters/torch/adapter.toml", "title =", "heading =")
    momentum = "velocity *= solver.momentum"
    repository.commit("wrong", "adapters/reference/graph.py", momentum, f"{momentum} / 2")
    return repository


@pytest.fixture
def run_revisions(clone, run_inline, certifying_home, monkeypatch):
    """A function that runs `xfbench` as if it ran from the clone."""
    monkeypatch.setenv("XFBENCH_HOME", str(certifying_home))
    monkeypatch.setattr(revisions, "find_checkout", lambda: clone.folder)
    return run_inline


def read_records(tmp_path):
    records = Store(tmp_path / "results").records()
    return sorted(records, key=lambda record: record.request.position)


def find_compare_command(outcome):
    [command] = re.findall(r"^Compare: xfbench (compare .*)$", outcome.stdout, re.MULTILINE)
    return command.split()


def test_a_record_names_the_revision_that_ran(clone, run_revisions, tmp_path):
    command = ["run", "--revisions", "base,slow", *REFERENCE, "--launches", "2", "--no-verify"]
    outcome = run_revisions(*command)
    assert outcome.returncode == 0, outcome.stderr
    base, slow = (clone.git("rev-parse", name) for name in ("base", "slow"))
    records = read_records(tmp_path)
    assert len({record.request.session for record in records}) == 1
    for block in (records[:2], records[2:]):
        assert {record.request.revision for record in block} == {base, slow}
    by_revision = {record.request.revision: record for record in records}
    for revision, record in by_revision.items():
        software = record.software
        assert (software.git_commit, software.git_dirty) == (revision, False)
        assert software.worker_digest == worker_archive.worker_digest("reference", revision)
        assert f"revision {revision[:12]}" in outcome.stderr
        with zipfile.ZipFile(Store(tmp_path / "results").run_folder(record) / "worker.pyz") as code:
            is_slow = b"sleep(0.2)" in code.read("xfbench/worker/loop.py")
        assert is_slow == (revision == slow)
    assert by_revision[base].cell != by_revision[slow].cell
    assert by_revision[base].software.adapter_digest == by_revision[slow].software.adapter_digest
    assert by_revision[base].software.worker_digest != by_revision[slow].software.worker_digest
    words = ["compare", f"revision={slow[:12]}", f"revision={base[:12]}"]
    assert find_compare_command(outcome)[:3] == words

    resumed = run_revisions(*command, "--resume")
    assert resumed.returncode == 0 and len(read_records(tmp_path)) == 4
    other = run_revisions(*command, "--resume", "--dry-run", "--revisions", "base,same")
    [cell] = [line for line in other.stdout.splitlines() if line.endswith(" · 2 launches")]
    assert f"revision {clone.git('rev-parse', 'same')[:12]}" in cell


def test_a_dry_run_shows_the_revision_of_each_launch(clone, run_revisions, tmp_path):
    command = ["run", "--revisions", "base,slow", *REFERENCE, "--launches", "1", "--dry-run"]
    lines = run_revisions(*command).stdout.splitlines()
    hashes = {clone.git("rev-parse", name)[:12] for name in ("base", "slow")}
    assert {re.search("revision ([0-9a-f]+)", line)[1] for line in lines[1:3]} == hashes
    requests = json.loads(run_revisions(*command, "--json").stdout)["requests"]
    assert {request["revision"][:12] for request in requests} == hashes
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--revisions bsae", "--revisions bsae: no such revision in"),
        ("--revisions base,same,base", "base and base are the same commit"),
        ("--revisions base,no-torch --framework torch", "adapter.toml: title: Field required"),
        ("--revisions base --bundle away", "--bundle has only the code of the running xfbench"),
    ],
)
def test_unsuitable_revisions_stop_before_any_launch(run_revisions, tmp_path, options, words):
    outcome = run_revisions("run", *TINY, *options.split())
    assert outcome.returncode == 2
    assert words in outcome.stderr and len(outcome.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_an_installed_package_has_no_revisions(run_inline, monkeypatch):
    monkeypatch.setattr(revisions, "find_checkout", lambda: None)
    outcome = run_inline("run", "--revisions", "HEAD", *REFERENCE)
    assert outcome.returncode == 2
    assert "needs xfbench to run from a git checkout" in outcome.stderr


@pytest.mark.parametrize(
    ("tag", "options", "words"),
    [
        ("no-min-time", "--min-time 1s", "does not know --min-time, which this run sets"),
        ("other-reply", "", "does not fit this version of xfbench: "),
        ("other-check", "", "does not fit this version of xfbench: "),
    ],
)
def test_a_worker_of_another_version_stops_before_any_launch(
    clone, run_revisions, tmp_path, tag, options, words
):
    command = ["run", "--revisions", f"base,{tag}", *REFERENCE, "--launches", "1", *options.split()]
    outcome = run_revisions(*command)
    assert outcome.returncode == 2
    assert f"the worker of revision {clone.git('rev-parse', tag)[:12]} {words}" in outcome.stderr
    assert not [*Store(tmp_path / "results").records()]


def test_a_setting_that_is_not_given_needs_no_newer_worker(run_revisions):
    options = ["--launches", "1", "--no-verify"]
    outcome = run_revisions("run", "--revisions", "no-min-time", *REFERENCE, *options)
    assert outcome.returncode == 0, outcome.stderr
    assert "Compare:" not in outcome.stdout


def test_a_job_gets_the_revisions(clone, run_revisions, tmp_path):
    values = {"framework": ["reference"], "workload": ["lenet"], "launches": 1}
    values |= {"launcher": "slurm", "revisions": ["base", "slow"]}
    plan = plan_builder.build_plan(values)
    [(part, job)] = job_queue.build_jobs_by_node_count(plan, Store(tmp_path / "results"))
    assert Plan.model_validate_json(part.model_dump_json()).revisions == plan.revisions
    swapped = plan_builder.build_plan({**values, "revisions": ["base", "same"]})
    [(_, other_job)] = job_queue.build_jobs_by_node_count(swapped, Store(tmp_path / "results"))
    assert job.name != other_job.name


@pytest.mark.deep
def test_only_a_slower_revision_fails_the_comparison(run_revisions):
    options = [*TINY, "--launches", "3", "--framework", "torch"]
    for revision in ("slow", "same"):
        outcome = run_revisions("run", "--revisions", f"base,{revision}", *options)
        assert outcome.returncode == 0, outcome.stderr
        assert "2 of 2 configurations proven equal" in outcome.stderr
        comparison = run_revisions(*find_compare_command(outcome))
        last_line = comparison.stderr.splitlines()[-1]
        # On a busy machine, launches of the same code are too noisy for a verdict.
        outcomes = ["FAIL"] if revision == "slow" else ["PASS", "INCONCLUSIVE"]
        assert last_line in [f"--fail-on: {each}" for each in outcomes], comparison.stderr
        assert comparison.returncode == (last_line != "--fail-on: PASS")


@pytest.mark.deep
def test_each_revision_is_verified_with_its_own_code(clone, run_revisions, tmp_path):
    base, same, wrong = (clone.git("rev-parse", name) for name in ("base", "same", "wrong"))
    options = [*REFERENCE, "--launches", "1", "--revisions", "base,same,wrong"]
    outcome = run_revisions("run", *options)
    assert outcome.returncode == 0, outcome.stderr
    assert f"revision {wrong[:12]}: different" in outcome.stderr
    certificates = certificate.read_certificates(tmp_path / "results")
    verdicts = [each.verdict for each in certificates.values() if each.timed_batch is None]
    assert sorted(verdicts) == ["different", "equal"]
    for record in read_records(tmp_path):
        is_wrong = record.request.revision == wrong
        assert (record.certificate is None) == is_wrong
        if not is_wrong:
            assert certificate.coverage_error(certificates[record.certificate], record) is None
    by_revision = {record.request.revision: record for record in read_records(tmp_path)}
    assert by_revision[base].certificate == by_revision[same].certificate


def test_a_certificate_of_a_revision_is_for_its_worker(clone, run_revisions, cell):
    def build_subject(revision):
        request = cell(revision=revision).request(1)
        return certify.build_subject(request, fake_framework.own_environment())

    base, same, slow = (
        build_subject(clone.git("rev-parse", name)) for name in ("base", "same", "slow")
    )
    assert base == same and base.adapter_digest == slow.adapter_digest
    assert len({each.key for each in (base, slow, build_subject(None))}) == 3
    assert build_subject(None).worker_digest is None


@pytest.mark.deep
def test_named_interpreters_are_launched_in_turns(run_inline, tmp_path):
    pythons = [f"--python=reference:{name}={sys.executable}" for name in ("old", "new")]
    outcome = run_inline("run", *REFERENCE, *pythons, "--launches", "2", "--no-verify")
    assert outcome.returncode == 0, outcome.stderr
    records = read_records(tmp_path)
    for block in (records[:2], records[2:]):
        assert {record.request.python for record in block} == {"old", "new"}
    assert {record.request.environment for record in records} == {"python"}
    assert len({record.cell for record in records}) == 2
    assert "reference:old" in outcome.stderr
    command = find_compare_command(outcome)
    assert command[:3] == ["compare", "python=new", "python=old"]
    assert run_inline(*command).returncode in (0, 1)
    [row] = json.loads(run_inline(*command, "--json").stdout)["comparisons"]
    assert row["paired"] and row["launches"] == 2 and row["reason"] is None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run --python reference=PY --python reference=PY", "reference:old=PATH and reference:new"),
        ("run --python reference:=PY", "a name has letters, digits"),
        ("run --python reference:a/b=PY", "a name has letters, digits"),
        ("run --python other:a=PY", "unknown framework 'other'"),
        ("run --python reference:a=PY --tuned", "--tuned has values for one interpreter"),
        ("run --python reference:a=PY --bundle away", "--bundle has one interpreter"),
        ("tune --python reference:a=PY", "only `xfbench run` has named interpreters"),
        ("verify --python reference:a=PY", "only `xfbench run` has named interpreters"),
    ],
)
def test_unsuitable_named_interpreters_are_refused(run_inline, command, words):
    name, *options = command.replace("PY", sys.executable).split()
    outcome = run_inline(name, "--framework", "reference", "--workload", "lenet", *options)
    assert outcome.returncode == 2
    assert words in outcome.stderr
