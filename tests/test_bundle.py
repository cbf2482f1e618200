"""Tests of bundles: written here, run without xfbench, and imported here again."""

import gzip
import io
import json
import shutil
import sys
import tarfile

import archspec.cpu
import pytest
from archspec.cpu import detect

from tests.sample_bundles import build_plan, run_bundle
from xfbench import bundle
from xfbench.analysis.leaderboard import build_tables
from xfbench.base import paths
from xfbench.base.errors import UsageError
from xfbench.environments import environment
from xfbench.equality import certify
from xfbench.equality.oracle import Oracle
from xfbench.equality.verify import Verdict
from xfbench.execution import record_builder
from xfbench.host import machine
from xfbench.model import adapter, certificate, origins
from xfbench.store.results_folder import Store
from xfbench.worker import host


@pytest.mark.deep
def test_bundle_of_a_real_framework_returns_certified_records(tmp_path, capsys, monkeypatch):
    """The bundle needs no network, and a Python with nothing but the framework and NumPy.

    Its certificates are those of the other machine: none goes to the user's own.
    """

    def cached_certificates():
        return {path.name for path in (paths.cache() / "certificates").glob("*")}

    plan = build_plan("torch", ranks=[1, 2], scaling="strong", threads=[1])
    folder = tmp_path / "away"
    bundle.write_carried_run(plan, folder, print)
    moved_folder = tmp_path / "elsewhere" / "a folder"
    shutil.move(folder, moved_folder)
    torch_environment = environment.ensure_environment(adapter.load("torch"))
    completed = run_bundle(moved_folder, f"torch={torch_environment.interpreter}")
    assert completed.returncode == 0, (completed.stdout, completed.stderr)
    store = Store(tmp_path / "results")
    cached_before = cached_certificates()
    records = bundle.import_carried_run(moved_folder, store, print)
    assert [record.status for record in records] == ["ok", "ok"], records[0].reason
    assert all(record.certificate for record in records), capsys.readouterr().out
    assert all(record.batch_certificate for record in records)
    described = machine.describe_machine().model_copy(update={"hostname_hash": ""})
    assert records[0].machine == described
    assert records[0].request.environment == "python"
    assert (
        records[0].software.packages["torch"]
        == environment.ensure_environment(adapter.load("torch")).version
    )
    certificates = certificate.read_certificates(store.folder)
    [table] = build_tables(records, certificates)
    assert len(table.rows) == 2, [row.reason for row in table.unranked]
    second_import = bundle.import_carried_run(moved_folder, store, print)
    assert [record.id for record in second_import] == [record.id for record in records]
    assert len(list(store.records())) == 2
    assert {*certificate.read_certificates(store.folder)} == {*certificates}
    assert cached_certificates() == cached_before
    known_origins = origins.read(store.folder)
    assert {known_origins.of_record(record) for record in records} == {"carried"}
    assert {note.origin for note in known_origins.certificates.values()} == {"carried"}
    assert known_origins.certificates.keys() == certificates.keys()
    verdict = Verdict(plan.requests[0], "unsupported", reason="out of memory")
    monkeypatch.setattr(
        certify, "_verify_timed_batches", lambda *arguments: [(arguments[3][0], verdict)]
    )
    third_store = Store(tmp_path / "results without batches")
    records = list(bundle.import_carried_run(moved_folder, third_store, print))
    assert all(record.certificate for record in records)
    assert [record.batch_certificate for record in records] == [None, None]
    assert {record.batch_unproven_reason for record in records} == {"out of memory"}


@pytest.fixture
def write_bundle(fake_adapter, tmp_path):
    def make(lines="", module="numpy", **settings):
        fake_adapter(lines, module=module)
        folder = tmp_path / "away"
        bundle.write_carried_run(
            build_plan("odd", launches=1, batch_size=[4], **settings), folder, print
        )
        return folder

    return make


def import_records(folder, tmp_path):
    return list(bundle.import_carried_run(folder, Store(tmp_path / "results"), print))


def test_finished_bundle_launch_is_not_repeated(write_bundle, tmp_path):
    folder = write_bundle()
    assert run_bundle(folder, f"odd={sys.executable}").returncode == 0
    reply = folder / "launches" / "00001" / "reply.json"
    before = reply.stat().st_mtime_ns
    assert run_bundle(folder, f"odd={sys.executable}").returncode == 0
    assert reply.stat().st_mtime_ns == before


def test_bundle_has_no_variables_of_the_machine_that_wrote_it(fake_adapter, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/here")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    fake_adapter(devices=["cpu", "cuda"], variables={"TZ": "UTC"})
    folder = tmp_path / "away"
    bundle.write_carried_run(build_plan("odd", device=["cuda"], batch_size=[4]), folder, print)
    line = (folder / "launches" / "00001" / "start.sh").read_text()
    for name in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "NCCL_DEBUG", "HOME="):
        assert name not in line
    assert "PYTHONHASHSEED=0" in line and "TZ=UTC" in line  # the adapter's own


def test_threads_and_ranks_of_the_other_shell_do_not_reach_a_bundle(write_bundle, tmp_path):
    folder = write_bundle("print(sorted(os.environ), flush=True)")
    planted = {"OMP_PROC_BIND": "true", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "9"}
    completed = run_bundle(folder, f"odd={sys.executable}", **planted, PYTHONPATH="/of/a/module")
    assert completed.returncode == 0, completed.stdout
    [output] = folder.glob("launches/*/stdout")
    names = output.read_text()
    assert "'PYTHONPATH'" in names and not any(f"'{name}'" in names for name in planted)
    assert [record.status for record in import_records(folder, tmp_path)] == ["ok"]


KEEPS_PROGRAMS = """
PROGRAMS = []
def keep_programs(folder): PROGRAMS.append(folder)
def after_step(rank, steps):
    if steps == 1:
        program = PROGRAMS[0] / "step"
        print("loaded" if program.exists() else "compiled", flush=True)
        program.touch()
"""


def test_launches_of_a_bundle_share_compiled_programs(fake_adapter, tmp_path):
    fake_adapter(KEEPS_PROGRAMS, keeps_programs=["cpu"])
    folder = tmp_path / "away"
    plan = build_plan("odd", launches=2, batch_size=[4])
    bundle.write_carried_run(plan, folder, print)
    completed = run_bundle(folder, f"odd={sys.executable}")
    assert completed.returncode == 0, completed.stdout
    outputs = [file.read_text().split() for file in sorted(folder.glob("launches/*/stdout"))]
    assert outputs == [["compiled"], ["loaded"]]
    [kept] = (folder / "programs").iterdir()
    assert [file.name for file in kept.iterdir()] == ["step"]
    assert [record.status for record in import_records(folder, tmp_path)] == ["ok", "ok"]


def test_what_failed_in_a_bundle_is_repeated_with_another_interpreter(write_bundle, tmp_path):
    folder = write_bundle()
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    for _ in range(2):
        failed = run_bundle(folder, f"odd={broken}")
        assert failed.returncode == 1 and "inspect/odd: exit status 3" in failed.stdout
    repeated = run_bundle(folder, f"odd={sys.executable}")
    assert repeated.returncode == 0, repeated.stdout
    [record] = import_records(folder, tmp_path)
    assert record.status == "ok", record.reason


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("odd", "expected FRAMEWORK=PYTHON, not odd"),
        ("--help", "expected FRAMEWORK=PYTHON, not --help"),
        ("odd=/no/such", "odd=/no/such: no such program"),
        ("even=python3", "this bundle has no framework even"),
    ],
)
def test_wrong_arguments_of_a_bundle_are_refused(write_bundle, argument, words):
    completed = run_bundle(write_bundle(), argument)
    assert completed.returncode == 2 and words in completed.stderr


def test_missing_framework_in_a_bundle_is_unavailable(write_bundle, tmp_path):
    folder = write_bundle(module="not_there")
    run_bundle(folder, f"odd={sys.executable}")
    [record] = import_records(folder, tmp_path)
    assert record.status == "unavailable"
    assert "not_there" in record.reason


def test_missing_interpreter_for_a_bundle_is_unavailable(write_bundle, tmp_path):
    folder = write_bundle()
    (folder / "interpreters" / "odd").write_text("/nowhere/python\n")
    assert run_bundle(folder).returncode == 1
    [record] = import_records(folder, tmp_path)
    assert record.status == "unavailable"


def test_launch_that_dies_in_a_bundle_is_crashed(write_bundle, tmp_path):
    folder = write_bundle("def after_step(rank, steps): os.kill(os.getpid(), 9)")
    assert run_bundle(folder, f"odd={sys.executable}").returncode == 1
    [record] = import_records(folder, tmp_path)
    assert record.status == "crashed"
    assert "SIGKILL" in record.reason


def test_rank_that_dies_in_a_bundle_ends_the_other_ranks(write_bundle, tmp_path):
    code = "def after_step(rank, steps): os._exit(7) if rank else time.sleep(600)"
    folder = write_bundle(code, ranks=[2], scaling="weak", threads=[1])
    assert run_bundle(folder, f"odd={sys.executable}").returncode == 1
    [record] = import_records(folder, tmp_path)
    assert record.status == "crashed"
    assert "rank 1 of 2: no reply: it ended with exit status 7" in record.reason


def test_bundle_launch_over_its_time_limit_is_timed_out(write_bundle, tmp_path):
    folder = write_bundle("def after_step(rank, steps): time.sleep(600)", time_limit=5)
    assert run_bundle(folder, f"odd={sys.executable}").returncode == 1
    [record] = import_records(folder, tmp_path)
    assert record.status == "timed_out"
    assert "5 s" in record.reason


def test_bundle_that_was_not_run_gives_no_records(write_bundle, tmp_path, capsys):
    folder = write_bundle()
    assert import_records(folder, tmp_path) == []
    assert "not run on the other machine" in capsys.readouterr().out


def test_unknown_framework_argument_is_refused(write_bundle):
    completed = run_bundle(write_bundle(), "touch=/usr/bin/python3")
    assert completed.returncode == 2 and "this bundle has no framework touch" in completed.stderr


def test_bundle_reply_to_another_request_is_crashed(write_bundle, tmp_path):
    folder = write_bundle()
    run_bundle(folder, f"odd={sys.executable}")
    reply = folder / "launches" / "00001" / "reply.json"
    document = json.loads(reply.read_text())
    reply.write_text(json.dumps({**document, "job": "sha256:" + "0" * 64}))
    [record] = import_records(folder, tmp_path)
    assert (record.status, record.reason) == ("crashed", "the reply belongs to another job")


def write_archive(folder, target, names):
    with tarfile.open(target, "w:gz") as archive:
        for name in names:
            archive.add(folder / name, name)


ALL = ("plan.json", "inspect", "checks", "launches")


def test_archive_of_a_bundle_gives_the_same_records(write_bundle, tmp_path, run_inline):
    """Other files in the archive are skipped, and importing again changes nothing."""
    folder, archive = write_bundle(), tmp_path / "away.tar.gz"
    run_bundle(folder, f"odd={sys.executable}")
    (folder / "facts").mkdir()
    (folder / "facts" / "machine.txt").write_text("facts")
    write_archive(folder, archive, [*ALL, "facts"])
    for _ in range(2):
        outcome = run_inline("results", "import", "--bundle", archive, "--results", "results")
        assert outcome.returncode == 0 and "lenet" in outcome.stdout
    [record] = import_records(folder, tmp_path)
    assert [each.id for each in Store(tmp_path / "results").records()] == [record.id]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_archive_that_is_cut_off_anywhere_gives_what_is_there(
    write_bundle, tmp_path, share, capsys
):
    folder, archive = write_bundle(), tmp_path / "away.tar.gz"
    run_bundle(folder, f"odd={sys.executable}")
    write_archive(folder, archive, ("plan.json", "launches/00001/request.json", *ALL[1:]))
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * share)])
    with bundle.open_bundle(archive, print) as unpacked:
        records = import_records(unpacked, tmp_path)
    output = capsys.readouterr().out
    assert "the archive is cut off" in output
    assert "ok" in [record.status for record in records] or "not run" in output


def test_archive_of_several_gzip_members_is_read_to_the_first_damage(tmp_path, capsys):
    """A kit appends each item as a gzip member, without the mark of a tar file's end."""
    content = b""
    for name in ("plan.json", "checks/1/status"):
        buffer = io.BytesIO()
        member = tarfile.TarInfo(name)
        member.size = len(name)
        tarfile.TarFile(fileobj=buffer, mode="w").addfile(member, io.BytesIO(name.encode()))
        content += gzip.compress(buffer.getvalue())
    for damage in (b"", b"garbage", gzip.compress(b"the next item")[:-9]):
        (tmp_path / "kit.tar.gz").write_bytes(content + damage)
        with bundle.open_bundle(tmp_path / "kit.tar.gz", print) as folder:
            assert (folder / "plan.json").read_text() == "plan.json"
            assert (folder / "checks/1/status").read_text() == "checks/1/status"
        assert ("the archive is cut off" in capsys.readouterr().out) == bool(damage)


def test_archive_with_a_member_outside_of_the_bundle_writes_nothing_there(tmp_path):
    archive = tmp_path / "away.tar"
    (tmp_path / "plan.json").write_text("{}")
    with tarfile.open(archive, "w") as tar:
        for name in (
            "../outside",
            "launches/../../outside",
            "/outside",
            "checks/1/..",
            "plan.json",
        ):
            tar.add(tmp_path / "plan.json", name)
    with bundle.open_bundle(archive, print) as folder:
        assert [path.name for path in folder.rglob("*")] == ["plan.json"]


def test_oracle_computes_nothing_for_cases_that_were_not_run(
    write_bundle, tmp_path, monkeypatch, capsys
):
    """An archive that was cut off has few of the cases, and the others would take hours."""
    folder = write_bundle()
    run_bundle(folder, f"odd={sys.executable}")
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, "verify": True}))
    monkeypatch.setattr(Oracle, "compute_expected", None)
    [record] = import_records(folder, tmp_path)
    assert record.status == "ok" and record.certificate is None
    assert "cases not run on the other machine: lenet" in capsys.readouterr().out


def test_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "text").write_text("no archive")
    for name in ("text", "missing"):
        with (
            pytest.raises(UsageError, match="neither a bundle nor an archive"),
            bundle.open_bundle(tmp_path / name, print),
        ):
            pass


def test_bundle_of_another_worker_is_refused(write_bundle, fake_adapter, tmp_path):
    """Its records would get the digest of a worker that never ran."""
    folder = write_bundle()
    run_bundle(folder, f"odd={sys.executable}")
    fake_adapter("def after_step(rank, steps): pass", module="numpy")
    with pytest.raises(UsageError, match="worker of odd is not that of this xfbench"):
        import_records(folder, tmp_path)
    (folder / "inspect" / "odd" / "worker.pyz").unlink()  # as in earlier bundles
    assert len(import_records(folder, tmp_path)) == 1


def test_launch_that_gets_its_certificate_later_has_one_record(write_bundle, tmp_path, monkeypatch):
    """Its cases may come back with another archive."""
    folder = write_bundle()
    run_bundle(folder, f"odd={sys.executable}")
    [record] = import_records(folder, tmp_path)
    build_record = record_builder.build_record

    def build_with_certificate(*arguments):
        *others, fields = arguments
        return build_record(*others, {**fields, "certificate": "sha256:" + "1" * 64})

    monkeypatch.setattr(record_builder, "build_record", build_with_certificate)
    assert [each.id for each in import_records(folder, tmp_path)] == [record.id]
    assert len(list(Store(tmp_path / "results").records())) == 1


def test_nonempty_target_and_folder_without_a_plan_are_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        bundle.write_carried_run(build_plan("torch"), tmp_path / "full", print)
    with pytest.raises(UsageError, match="not a bundle"):
        list(bundle.import_carried_run(tmp_path, Store(tmp_path / "results"), print))


def test_processor_without_a_model_gets_a_generic_architecture(monkeypatch):
    """An AMD EPYC with AVX-512 lacks some features of Zen 4 and has more than Zen 2."""
    targets = archspec.cpu.TARGETS
    monkeypatch.setattr(detect, "_machine", lambda: "x86_64")
    facts = {**host.machine_facts(), "architecture": "x86_64", "vendor": "AuthenticAMD"}
    for extra_features, expected in [((), "zen2"), (targets["x86_64_v4"].features, "x86_64_v4")]:
        flags = sorted({*targets["zen2"].features, *extra_features})
        assert machine.machine_from_facts({**facts, "flags": flags}).microarchitecture == expected


def test_worker_facts_describe_the_same_machine_as_the_driver():
    here = machine.describe_machine().model_copy(update={"hostname_hash": ""})
    assert machine.machine_from_facts(host.machine_facts()) == here
    with pytest.raises(ValueError, match="facts of the machine are invalid"):
        machine.machine_from_facts({"vendor": "x"})
