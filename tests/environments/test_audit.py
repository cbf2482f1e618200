"""`xfbench env audit`: published flaws are found in every lock, and missing data are no success."""

import itertools
import json
import os
import re
import struct
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from xfbench.environments import audit

ROOT = Path(__file__).parents[2]
# By the file system, not by the list of the command, so that it cannot forget a new lock.
LOCKS = sorted(
    lock
    for folder in ROOT.iterdir()
    if folder.is_dir() and not folder.name.startswith(".") and folder.name != "build"
    for lock in folder.rglob("*.lock")
)
by_lock = pytest.mark.parametrize(
    "lock", LOCKS, ids=[str(lock.relative_to(ROOT)) for lock in LOCKS]
)
ECOSYSTEMS = ("PyPI", "Debian:11")


def make_advisory(name, ecosystem="PyPI", events=({"introduced": "0"},), **fields):
    """Return an advisory as OSV writes it."""
    affected = {
        "package": {"ecosystem": ecosystem, "name": name},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
    }
    affected |= {key: fields.pop(key) for key in ("versions", "ranges") if key in fields}
    return {"id": "OSV-1", "modified": "2026-01-01T00:00:00Z", "affected": [affected], **fields}


NO_FLAWS = [make_advisory("no-such-package", ecosystem) for ecosystem in ECOSYSTEMS]


@pytest.fixture
def run_audit(run_inline, tmp_path):
    """A function that runs the command with a file of these advisories."""

    def run(advisories):
        (tmp_path / "advisories.json").write_text(json.dumps(advisories))
        return run_inline("env", "audit", "--advisories", tmp_path / "advisories.json")

    return run


@pytest.fixture
def judge(tmp_path):
    """A function that returns the note of an advisory's flaw in a locked version, or None."""

    def find_note(version, advisory, line="{name}=={version} \\\n    --hash=sha256:00\n"):
        lock = tmp_path / "requirements.lock"
        lock.write_text(line.format(name="Some.Package", version=version))
        (tmp_path / "a.json").write_text(json.dumps([advisory, *NO_FLAWS]))
        flaws = audit.compare([lock], [tmp_path / "a.json"]).flaws
        return flaws[0].note if flaws else None

    return find_note


@by_lock
def test_made_up_flaw_is_found_in_every_lock(lock, run_audit):
    package = audit.read_lock(lock)[-1]
    events = [{"introduced": "0"}, {"last_affected": package.version}]
    flaw = make_advisory(package.name, package.ecosystem, events, id="GHSA-made-up")
    process = run_audit([flaw, *NO_FLAWS])
    assert process.returncode == 1, process.stderr
    line = next(line for line in process.stdout.splitlines() if line.startswith(f"{lock} "))
    assert line.split() == [str(lock), package.name, package.version, "GHSA-made-up"]


def test_locks_without_a_flaw_pass(run_audit):
    process = run_audit(NO_FLAWS)
    assert (process.returncode, process.stdout) == (0, "")
    assert f"{len(LOCKS)} locks with" in process.stderr


@by_lock
def test_every_package_of_a_lock_has_a_hash(lock):
    lines = lock.read_text().replace("\\\n", " ").splitlines()
    pinned = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    assert len(pinned) == len(audit.read_lock(lock))
    assert all(re.search(r"sha256:[0-9a-f]{64}\b", line) for line in pinned)


@by_lock
def test_every_debian_package_has_a_source_package(lock):
    packages = [each for each in audit.read_lock(lock) if each.ecosystem != audit.PYPI]
    sources = tomllib.loads(audit._SOURCES.read_text())["bullseye"]
    assert {package.name for package in packages} <= set(sources)


@pytest.mark.parametrize(("name", "groups"), [("xfbench", ()), ("development", ("dev", "figures"))])
def test_locks_of_the_project_satisfy_its_requirements(name, groups):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(each for group in groups for each in project["optional-dependencies"][group]),
    ]
    locked = {}
    for package in audit.read_lock(ROOT / f"requirements/{name}.lock"):
        locked.setdefault(min(package.names), []).append(package.version)
    for requirement in map(Requirement, requirements):
        [normalised] = {str(audit.canonicalize_name(requirement.name))}
        versions = locked.get(normalised, [])
        assert versions and all(map(requirement.specifier.contains, versions)), (
            f"{requirement}: run `make locks`"
        )


@pytest.mark.parametrize(
    ("version", "events", "note"),
    [
        ("1.9", [{"introduced": "0"}, {"fixed": "1.10"}], ""),
        ("1.10", [{"introduced": "0"}, {"fixed": "1.10"}], None),
        ("1.10.0", [{"introduced": "0"}, {"fixed": "1.10"}], None),
        ("1.10rc1", [{"introduced": "0"}, {"fixed": "1.10"}], ""),
        ("1.10", [{"introduced": "0"}, {"last_affected": "1.10"}], ""),
        ("1.10.post1", [{"introduced": "0"}, {"last_affected": "1.10"}], None),
        ("1.10+cpu", [{"introduced": "0"}, {"last_affected": "1.10"}], ""),
        ("1!1.0", [{"introduced": "0"}, {"fixed": "2"}], None),
        ("2", [{"fixed": "1.5"}, {"introduced": "1"}, {"introduced": "2"}, {"fixed": "3"}], ""),
        ("1.7", [{"fixed": "1.5"}, {"introduced": "1"}, {"introduced": "2"}], None),
        ("0.9", [{"introduced": "1"}], None),
        ("1", [{"introduced": "1"}], ""),
        ("1.5", [{"introduced": "0", "fixed": "1"}], None),
        ("1", [{"introduced": "one"}], "a version of its range cannot be compared"),
        ("1", [{"introduced": "9" * 5000}], "a version of its range cannot be compared"),
    ],
)
def test_ranges_are_compared_by_pep_440(judge, version, events, note):
    assert judge(version, make_advisory("some_package", events=events)) == note


def test_listed_versions_count_and_other_advisories_do_not(judge):
    listed = make_advisory("Some-Package", ranges=None, versions=["not a version", "1.0"])
    assert judge("1.0", listed) == ""
    assert judge("1", listed) == ""
    assert judge("1.1", listed) is None
    git = [{"type": "GIT", "repo": "https://example.org", "events": [{"introduced": "0"}]}]
    assert judge("1.1", make_advisory("some-package", ranges=git, versions=["1.0"])) is None
    assert judge("1.1", make_advisory("some-package", ranges=[])) == "no versions are named"
    assert judge("1.0", {**listed, "withdrawn": "2026-01-01T00:00:00Z"}) is None
    assert judge("1.0", make_advisory("some-package", "npm")) is None
    assert judge("1.0", make_advisory("another-package")) is None


def test_advisories_of_debian_name_the_source_package(run_audit):
    fixed = make_advisory("libcaffe", "Debian:11", [{"introduced": "0"}, {"fixed": "1.0"}])
    assert run_audit([fixed, *NO_FLAWS]).returncode == 0
    caffe = make_advisory("caffe", "Debian:11", [{"introduced": "0"}, {"fixed": "2"}])
    process = run_audit([caffe, *NO_FLAWS])
    assert process.returncode == 1
    assert {"caffe", "libcaffe1", "python3-caffe"} <= set(process.stdout.split())
    of_all_releases = make_advisory("jemalloc", "Debian")
    assert "libjemalloc2" in run_audit([of_all_releases, *NO_FLAWS]).stdout
    of_another_release = make_advisory("jemalloc", "Debian:13")
    assert run_audit([of_another_release, *NO_FLAWS]).returncode == 0


VERSIONS = (
    *("1", "1.0", "1.0-1", "1.0-1+b1", "1.0-1+deb11u1", "1.0~rc1-1", "1.0~~", "1:0.1", "0:1.0-1"),
    *("1.10-1", "1.9-1", "1.0a-1", "1.0+dfsg-2", "1.0-0", "1.0.errata1-3", "2.0-1~bpo11+1", "01.0"),
)


def test_versions_of_debian_are_ordered_as_by_dpkg():
    for first, second in itertools.pairwise(sorted(VERSIONS, key=audit.build_debian_key)):
        are_equal = audit.build_debian_key(first) == audit.build_debian_key(second)
        command = ["dpkg", "--compare-versions", first, "eq" if are_equal else "lt", second]
        assert subprocess.run(command, check=False).returncode == 0, command


def test_advisories_are_read_from_zip_files_and_answers(run_inline, tmp_path):
    flaw = make_advisory("numpy", id="PYSEC-1")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(flaw))
        archive.writestr("modified_id.csv", "PYSEC-1")
    (tmp_path / "debian.json").write_text(json.dumps({"vulns": NO_FLAWS}))
    (tmp_path / "batch.json").write_text(json.dumps({"results": [{}, {"vulns": [flaw]}]}))
    for file in ("all.zip", "batch.json"):
        options = ("--advisories", file, "--advisories", "debian.json")
        process = run_inline("env", "audit", *options)
        assert process.returncode == 1 and "PYSEC-1" in process.stdout, process.stderr


def test_lock_without_advisories_of_its_ecosystem_is_a_failure(run_audit):
    process = run_audit(NO_FLAWS[:1])
    assert process.returncode == 1
    assert "allocators.lock: not compared" in process.stderr
    assert "torch/requirements.lock: not compared" not in process.stderr


def write_bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", b" " * (audit._MAX_MEMBER_BYTES + 1))


def write_zip_that_understates_its_size(path):
    write_bomb(path)
    size = struct.pack("<I", audit._MAX_MEMBER_BYTES + 1)
    assert path.read_bytes().count(size) == 2
    path.write_bytes(path.read_bytes().replace(size, struct.pack("<I", 1000)))


def write_damaged_zip(path, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.json", json.dumps(NO_FLAWS) * 9)
    content = bytearray(path.read_bytes())
    content[50:60] = bytes(10)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "not a plain file"),
        (os.mkfifo, "not a plain file"),
        (lambda path: path.write_text(""), "OSV's format"),
        (lambda path: path.write_text("[]"), "nothing was compared"),
        (lambda path: path.write_text("{}"), "nothing was compared"),
        (lambda path: path.write_text("[" * 10**5), "OSV's format"),
        (lambda path: path.write_text("[1]"), "OSV's format"),
        (lambda path: path.write_text('{"dependencies": []}'), "OSV's format"),
        (lambda path: path.write_text('{"id": "\x1b[2J"}'), "OSV's format"),
        (lambda path: path.write_text(json.dumps([{"id": "A", "affected": [1]}])), "affected.0"),
        (write_bomb, "too long"),
        (write_zip_that_understates_its_size, "OSV's format"),
        (write_damaged_zip, "OSV's format"),
        (lambda path: write_damaged_zip(path, zipfile.ZIP_LZMA), "in an unusual way"),
    ],
)
def test_file_without_advisories_is_refused_in_one_line(run_inline, tmp_path, write, words):
    write(tmp_path / "advisories")
    process = run_inline("env", "audit", "--advisories", "advisories")
    assert process.returncode == 2 and words in process.stderr
    assert len(process.stderr.splitlines()) == 1 and "\x1b" not in process.stderr
    assert process.stdout == ""


def test_audit_without_a_file_says_that_nothing_was_compared(run_inline):
    process = run_inline("env", "audit")
    assert process.returncode == 2
    assert "nothing was compared" in process.stderr


@pytest.mark.deep
def test_make_audit_without_data_fails_and_says_so():
    process = subprocess.run(
        ["make", "--no-print-directory", "audit"],
        cwd=ROOT,
        env={**os.environ, "MAKEFLAGS": "", "ADVISORIES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2 and "nothing was compared" in process.stderr


def test_text_of_an_advisory_moves_no_cursor(run_audit):
    process = run_audit([make_advisory("numpy", id="A\x1b[2J\n"), *NO_FLAWS])
    assert process.returncode == 1
    assert "\x1b" not in process.stdout and r"A\x1b[2J\n" in process.stdout


@pytest.mark.parametrize("line", ["numpy>=2\n", "-e .\n", "numpy @ file:///x\n", "numpy==one\n"])
def test_unpinned_line_of_a_lock_is_refused(tmp_path, line):
    (tmp_path / "a.lock").write_text(line)
    with pytest.raises(audit.UsageError, match=r"a\.lock"):
        audit.read_lock(tmp_path / "a.lock")
