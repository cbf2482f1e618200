"""A run that is written here, run where nothing of ours is, and read here again."""

import json
import os
import shutil
import subprocess
import sys

import archspec.cpu
import pytest
from archspec.cpu import detect

from xfbench import adapter, experiment
from xfbench.analysis.leaderboard import tables
from xfbench.base.errors import UsageError
from xfbench.environments import environment
from xfbench.equality import certificate
from xfbench.host import machine
from xfbench.plan import Plan
from xfbench.results.store import Store
from xfbench.running import carry
from xfbench.scheduling import launch_order
from xfbench.worker import host


def planned(framework, time_limit=300, **settings):
    chosen = {"workload": ["lenet"], "steps": 2, "launches": 1, "data": "synthetic", **settings}
    matrix = experiment.matrix(framework=[framework], **chosen)
    cells = experiment.cells([matrix], {framework: "python3"})
    return Plan(
        requests=tuple(launch_order(cells)),
        protocols=tuple(cells),
        pythons={},
        verify=settings.get("launches") is None,
        strict=False,
        time_limit=time_limit,
    )


def there(folder, *interpreters):
    """Run the folder as on another machine: nothing of ours in the environment."""
    return subprocess.run(
        ["sh", str(folder / "run.sh"), *interpreters],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.deep
def test_bundle_of_a_real_framework_returns_certified_records(tmp_path, capsys):
    """With no network, and a Python that has nothing but the framework and NumPy."""
    plan = planned("torch", ranks=[1, 2], scaling="strong", threads=[1])
    folder = tmp_path / "away"
    carry.write_carried_run(plan, folder, print)
    moved = tmp_path / "elsewhere" / "a folder"
    shutil.move(folder, moved)
    own = environment.ensure(adapter.load("torch"))
    done = there(moved, f"torch={own.interpreter}")
    assert done.returncode == 0, (done.stdout, done.stderr)
    store = Store(tmp_path / "results")
    records = list(carry.read_carried_run(moved, store, print))
    assert [record.status for record in records] == ["ok", "ok"], records[0].reason
    assert all(record.certificate for record in records), capsys.readouterr().out
    assert records[0].machine == machine.describe()
    assert records[0].request.environment == "python"
    assert (
        records[0].software.packages["torch"] == environment.ensure(adapter.load("torch")).version
    )
    [table] = tables(records, certificate.read_folder(store.folder))
    assert len(table.rows) == 2
    again = list(carry.read_carried_run(moved, store, print))
    assert [record.id for record in again] == [record.id for record in records]
    assert len(list(store.records())) == 2


@pytest.fixture
def odd(fake_adapter, tmp_path):
    def make(lines="", module="numpy", **settings):
        fake_adapter(lines, module=module)
        folder = tmp_path / "away"
        carry.write_carried_run(
            planned("odd", launches=1, batch_size=[4], **settings), folder, print
        )
        return folder

    return make


def imported(folder, tmp_path):
    return list(carry.read_carried_run(folder, Store(tmp_path / "results"), print))


def test_finished_bundle_launch_is_not_repeated(odd, tmp_path):
    folder = odd()
    assert there(folder, f"odd={sys.executable}").returncode == 0
    reply = folder / "launches" / "00001" / "reply.json"
    before = reply.stat().st_mtime_ns
    assert there(folder, f"odd={sys.executable}").returncode == 0
    assert reply.stat().st_mtime_ns == before


def test_missing_framework_in_a_bundle_is_unavailable(odd, tmp_path):
    folder = odd(module="not_there")
    there(folder, f"odd={sys.executable}")
    [record] = imported(folder, tmp_path)
    assert record.status == "unavailable"
    assert "not_there" in record.reason


def test_missing_interpreter_for_a_bundle_is_unavailable(odd, tmp_path):
    folder = odd()
    assert there(folder, "odd=/nowhere/python").returncode == 1
    [record] = imported(folder, tmp_path)
    assert record.status == "unavailable"


def test_launch_that_dies_in_a_bundle_is_crashed(odd, tmp_path):
    folder = odd("def after_step(rank, steps): os.kill(os.getpid(), 9)")
    assert there(folder, f"odd={sys.executable}").returncode == 1
    [record] = imported(folder, tmp_path)
    assert record.status == "crashed"
    assert "SIGKILL" in record.reason


def test_rank_that_dies_in_a_bundle_ends_the_other_ranks(odd, tmp_path):
    died = "def after_step(rank, steps): os._exit(7) if rank else time.sleep(600)"
    folder = odd(died, ranks=[2], scaling="weak", threads=[1])
    assert there(folder, f"odd={sys.executable}").returncode == 1
    [record] = imported(folder, tmp_path)
    assert record.status == "crashed"
    assert "rank 1 of 2: no reply: it ended with exit status 7" in record.reason


def test_bundle_launch_over_its_time_limit_is_timed_out(odd, tmp_path):
    folder = odd("def after_step(rank, steps): time.sleep(600)", time_limit=5)
    assert there(folder, f"odd={sys.executable}").returncode == 1
    [record] = imported(folder, tmp_path)
    assert record.status == "timed_out"
    assert "5 s" in record.reason


def test_bundle_that_was_not_run_gives_no_records(odd, tmp_path, capsys):
    folder = odd()
    assert imported(folder, tmp_path) == []
    assert "not run there" in capsys.readouterr().out


def test_unknown_framework_argument_is_refused(odd):
    done = there(odd(), "touch=/usr/bin/python3")
    assert done.returncode == 2 and "no such framework here: touch" in done.stderr


def test_bundle_reply_to_another_request_is_crashed(odd, tmp_path):
    folder = odd()
    there(folder, f"odd={sys.executable}")
    reply = folder / "launches" / "00001" / "reply.json"
    document = json.loads(reply.read_text())
    reply.write_text(json.dumps({**document, "job": "sha256:" + "0" * 64}))
    [record] = imported(folder, tmp_path)
    assert (record.status, record.reason) == ("crashed", "the reply answers another request")


def test_nonempty_target_and_folder_without_a_plan_are_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        carry.write_carried_run(planned("torch"), tmp_path / "full", print)
    with pytest.raises(UsageError, match="no carried run"):
        list(carry.read_carried_run(tmp_path, Store(tmp_path / "results"), print))


def test_processor_without_a_model_gets_a_generic_architecture(monkeypatch):
    """An AMD EPYC with AVX-512 lacks some of Zen 4's, and has more than Zen 2."""
    of = archspec.cpu.TARGETS
    monkeypatch.setattr(detect, "_machine", lambda: "x86_64")
    facts = {**host.facts(), "architecture": "x86_64", "vendor": "AuthenticAMD"}
    for hidden, named in [((), "zen2"), (of["x86_64_v4"].features, "x86_64_v4")]:
        flags = sorted({*of["zen2"].features, *hidden})
        assert machine.machine_from_facts({**facts, "flags": flags}).microarchitecture == named


def test_worker_facts_describe_the_same_machine_as_the_driver():
    assert machine.machine_from_facts(host.facts()) == machine.describe()
    with pytest.raises(ValueError, match="facts of the machine are invalid"):
        machine.machine_from_facts({"vendor": "x"})
