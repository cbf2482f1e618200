"""Bundles that return from an untrusted machine with arbitrary contents."""

import gzip
import json
import os
import shutil
import sys
import tarfile
import zipfile

import numpy as np
import pytest

from tests import fake_framework
from tests.sample_bundles import build_plan, run_bundle
from xfbench import bundle
from xfbench.base.errors import UsageError
from xfbench.equality import jobs
from xfbench.equality.oracle import Oracle
from xfbench.model.plan import Plan
from xfbench.store.results_folder import Store


@pytest.fixture(scope="module")
def carried_folder(tmp_path_factory):
    """Yield the folder of a bundle that has run."""
    root = tmp_path_factory.mktemp("carried")
    fake_framework.write(root / "adapters" / "odd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XFBENCH_ADAPTERS", str(root / "adapters"))
        bundle.write_carried_run(
            build_plan("odd", launches=1, batch_size=[4]), root / "away", print
        )
        run_bundle(root / "away", f"odd={sys.executable}")
        yield root / "away"


@pytest.fixture
def folder(carried_folder, tmp_path):
    shutil.copytree(carried_folder, tmp_path / "back")
    return tmp_path / "back"


def import_folder(folder):
    store = Store(folder.parent / "results")
    return bundle.import_carried_run(folder, store, print), store


def import_by_command(run_inline, folder):
    """Import the bundle as users do; return the result, and the origins that are listed then."""
    imported = run_inline("results", "import", "--bundle", folder, "--results", "ours")
    listed = run_inline("results", "list", "--json", "--results", "ours")
    origins = json.loads(listed.stdout)["origins"] if listed.returncode == 0 else {}
    return imported, {*origins.values()}


def test_carried_records_are_measured_elsewhere_wherever_they_go(folder, run_inline, tmp_path):
    imported, origins = import_by_command(run_inline, folder)
    assert imported.returncode == 0, imported.stderr
    assert origins == {"measured elsewhere and carried"}
    words = "all rows (measured elsewhere and carried)"
    assert words in " ".join(run_inline("leaderboard", "--results", "ours").stdout.split())
    assert words in " ".join(imported.stdout.split())
    [identity] = [record.id[7:19] for record in Store(tmp_path / "ours").records()]
    shown = run_inline("results", "show", identity, "--results", "ours").stdout
    assert "\norigin  measured elsewhere and carried (from back)\n" in shown
    again, origins = import_by_command(run_inline, folder)
    assert again.returncode == 0 and origins == {"measured elsewhere and carried"}
    assert len([*(tmp_path / "ours" / "origins").iterdir()]) == 1, "nothing new, so no new note"
    run_inline("results", "export", "1.tar", "--results", "ours")
    assert run_inline("results", "import", "1.tar", "--results", "more").returncode == 0
    listed = json.loads(run_inline("results", "list", "--json", "--results", "more").stdout)
    assert {*listed["origins"].values()} == {"imported"}
    refused = run_inline("results", "import", folder, "--results", "none")
    assert refused.returncode == 2 and "--bundle" in refused.stderr


@pytest.mark.parametrize(
    "started", ["", "now", "9999-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "2026-01-01", "\x1b[2J"]
)
def test_a_carried_launch_without_a_credible_start_is_not_imported(folder, run_inline, started):
    (folder / "launches" / "00001" / "started").write_text(started)
    imported, origins = import_by_command(run_inline, folder)
    assert "not imported, its start has no valid time" in imported.stderr and origins == set()


def bomb(path):
    """An archive of a few kB that expands to 128 MiB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for number in range(4):
            file.writestr(f"{number}.py", b"\0" * 2**25)


def damage_lzma(path):
    """An archive of one file, which LZMA compressed and which was damaged then."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        file.writestr("a.py", "x = 1\n" * 1000)
    content = bytearray(path.read_bytes())
    content[45:60] = bytes(15)
    path.write_bytes(content)


def repeat_key(path):
    path.write_text(path.read_text().replace("{", '{"verify": true, ', 1))


HOSTILE_FILES = {
    "a worker that expands": ("inspect/odd/worker.pyz", bomb, "larger than 32 MiB"),
    "a damaged worker": ("inspect/odd/worker.pyz", damage_lzma, "compressed in an unusual way"),
    "a plan with a key twice": ("plan.json", repeat_key, "'verify' occurs twice"),
    "a plan of many values": (
        "plan.json",
        lambda path: path.write_text('{"requests": [' + "," * 4_000_001),
        "values",
    ),
    "a plan that is nested deeply": (
        "plan.json",
        lambda path: path.write_text("[" * 10**6),
        "plan.json",
    ),
}


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_hostile_file_of_a_bundle_is_refused(folder, run_inline, tmp_path, name):
    file, change, words = HOSTILE_FILES[name]
    change(folder / file)
    imported, _ = import_by_command(run_inline, folder)
    assert imported.returncode == 2 and words in imported.stderr
    assert len(imported.stderr.splitlines()) == 1 and not (tmp_path / "ours").exists()


@pytest.mark.parametrize("file", ["inspect/odd/worker.pyz", "inspect/odd/reply.json"])
def test_pipe_in_a_bundle_does_not_wait(folder, run_inline, file):
    (folder / file).unlink()
    os.mkfifo(folder / file)
    imported, _ = import_by_command(run_inline, folder)
    assert imported.returncode in (0, 1)


@pytest.mark.parametrize("header_type", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_archive_of_a_bundle_with_a_huge_header_is_refused(run_inline, tmp_path, header_type):
    member = tarfile.TarInfo("x")
    member.type, member.size = header_type, 2**33 - 512
    header = member.tobuf(tarfile.USTAR_FORMAT)
    (tmp_path / "evil.tar.gz").write_bytes(gzip.compress(header + b"\0" * 1024))
    refused = run_inline("results", "import", "--bundle", "evil.tar.gz", "--results", "ours")
    assert refused.returncode == 2 and "too large for a bundle" in refused.stderr


def test_links_and_pipes_in_a_bundle_are_not_imported(folder, tmp_path):
    (tmp_path / "secret").write_text("hunter2")
    launch_folder = folder / "launches" / "00001"
    (launch_folder / "notes").symlink_to(tmp_path / "secret")
    (launch_folder / "endless").symlink_to("/dev/zero")
    (launch_folder / "stderr").unlink()
    (launch_folder / "stderr").symlink_to(tmp_path / "secret")
    os.mkfifo(launch_folder / "pipe")
    [record], store = import_folder(folder)
    names = {path.name for path in store.run_folder(record).iterdir()}
    assert {"request.json", "reply.json", "stdout"} <= names
    assert not {"notes", "endless", "stderr", "pipe"} & names
    assert "hunter2" not in str(record.reason)
    second_import, _ = import_folder(folder)
    assert second_import == [record]


def test_arrays_of_a_bundle_have_a_limit(folder, monkeypatch):
    carried_run = bundle._CarriedRun(folder, Plan.read(folder / "plan.json"))
    [request], documents = carried_run.plan.requests, [{"name": "case"}]
    case_folder = folder / "checks" / bundle._case_folder_name(request, documents)
    shutil.copytree(folder / "launches" / "00001", case_folder)
    np.savez(case_folder / "found.npz", **{"case:gradient": np.zeros(4)})
    monkeypatch.setattr(bundle, "_MAX_ARRAY_BYTES", 100)
    with pytest.raises(jobs.CheckError, match="all ranks are longer than"):
        carried_run.read_case_results(documents, request)


def test_oracle_computes_no_case_of_too_many_ranks(folder, monkeypatch, capsys):
    """A stranger's plan says how many there are, and a forged folder that their cases were run."""
    plan = json.loads((folder / "plan.json").read_text())
    [request] = plan["requests"]
    request |= {"ranks": 20_000, "global_batch_size": 20_000 * request["batch_size_per_rank"]}
    (folder / "plan.json").write_text(json.dumps({**plan, "verify": True}))
    forged = folder / "checks" / "forged"
    forged.mkdir(parents=True)
    (forged / "status").write_text("0")
    (forged / "request.json").write_text(json.dumps({"request": request, "cases": []}))
    monkeypatch.setattr(Oracle, "compute_expected", None)
    import_folder(folder)
    assert "too many ranks for the oracle" in capsys.readouterr().out


STRANGE = [b"", b"\xff", b"-", b"9" * 9, b"x" * 10**6, b"[" * 10**5, b"[]", b"{}", None]


@pytest.mark.parametrize(
    "name",
    [
        *("launches/00001/status", "launches/00001/failed", "launches/00001/request.json"),
        *("launches/00001/reply.json", "launches/00001/started"),
        *("inspect/odd/reply.json", "inspect/odd/status", "plan.json"),
    ],
)
def test_strange_bundle_file_gives_a_record_or_a_short_error(folder, name):
    for content in STRANGE:
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)
        try:
            records, _ = import_folder(folder)
        except UsageError as error:
            assert name == "plan.json" and len(str(error).splitlines()) == 1
            continue
        assert name != "plan.json"
        assert all(record.reason is None or len(record.reason) < 600 for record in records)
