"""The orchestrator and its listeners."""

import ast
import io
import math
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests import fake_framework
from tests.product_modules import MODULES
from tests.sample_records import vary_record
from xfbench import progress, session
from xfbench.analysis import leaderboard
from xfbench.equality import certify
from xfbench.equality.jobs import CheckError
from xfbench.equality.verify import Verdict
from xfbench.execution.launch import LaunchContext
from xfbench.model import certificate
from xfbench.model.plan import Plan, Submission
from xfbench.model.request import Protocol
from xfbench.store.results_folder import Store

# Functions that prepare environments or start launches, and the modules that may call them.
RESERVED = {
    "ensure_environment": {
        *("xfbench.session", "xfbench.cli.env"),
        # These verify, or compute what a network should give, in environments of their own.
        *("xfbench.equality.oracle", "xfbench.equality.plants", "xfbench.equality.verdicts"),
        "xfbench.equality.worker_check",
        *("xfbench.execution.canary", "xfbench.execution.tracing"),
    },
    "ensure_library": {"xfbench.session"},
    "run_launch": {"xfbench.session"},
    "certify_requests": {"xfbench.session"},
    "submit_and_follow": {"xfbench.session"},
    "write_carried_run": {"xfbench.session"},
}


@pytest.fixture
def plan(fake_adapter, cell):
    fake_adapter()
    pair = (cell(framework="odd", kernel="plain", steps=1, warmup=0), Protocol.fixed(3))
    return Plan(
        requests=tuple(pair[0].request(number) for number in (1, 2, 3)),
        protocols=(pair,),
        pythons={},
        verify=False,
        strict=False,
        time_limit=60.0,
    )


@pytest.fixture
def run(plan, tmp_path):
    """Return a function that runs the plan, and the results folder's store."""
    store = Store(tmp_path / "results")

    def run_plan(*listeners, **changes):
        context = LaunchContext(store, {"odd": fake_framework.own_environment()})
        return session.Session(context, *listeners).run(plan.model_copy(update=changes))

    return run_plan, store


EVENTS = [name for name in vars(session.Listener) if not name.startswith("_")]
LAUNCH_EVENTS = [name for name in EVENTS if name.startswith(("preparation", "launch"))]


def make_listener(handle, events=EVENTS):
    """Return a listener that calls `handle` with the name and the arguments of each event."""
    methods = {name: lambda _, *values, name=name: handle(name, *values) for name in events}
    return type("Listening", (session.Listener,), methods)()


@pytest.mark.parametrize("event", LAUNCH_EVENTS)
def test_a_listener_that_raises_loses_no_record(run, event):
    run_plan, store = run

    def fail(*_):
        raise OSError("the terminal is gone")

    heard = []
    other = make_listener(lambda name, *_: heard.append(name), ["launch_ended"])
    with pytest.warns(UserWarning, match="Listening hears nothing more"):
        records = run_plan(make_listener(fail, [event]), other)
    assert [record.request.launch for record in records] == [1, 2, 3]
    assert heard == ["launch_ended"] * 3
    assert len(list(store.records())) == 3


def test_a_listener_hears_of_each_launch_after_its_record_is_stored(run):
    run_plan, store = run
    heard = []
    events = [*LAUNCH_EVENTS, "closed"]  # others depend on what else the machine does
    run_plan(make_listener(lambda name, *_: heard.append((name, len([*store.records()]))), events))
    launches = [(name, n) for n in (0, 1, 2) for name in ("launch_started", "launch_ended")]
    assert heard == [
        *[(name, 0) for name in ("preparation_started", "preparation_ended", "launches_started")],
        *[(name, n + (name == "launch_ended")) for name, n in launches],
        *[("launches_ended", 3), ("closed", 3)],
    ]


def test_a_failed_launch_leaves_no_live_display(run, monkeypatch):
    """The cursor is shown again and print works, also if preparing or launching raises."""
    run_plan, _ = run
    for stage in ("run_launch", "_prepare"):
        stream = io.StringIO()
        bar = progress.Bar(Console(file=stream, force_terminal=True))

        def fail(*_):
            raise ValueError("a defect")

        monkeypatch.setattr(session, stage, fail)
        usual = sys.stdout, sys.stderr
        with pytest.raises(ValueError, match="a defect"):
            run_plan(bar)
        assert (sys.stdout, sys.stderr) == usual
        hidden, shown = (stream.getvalue().count(f"\x1b[?25{letter}") for letter in "lh")
        assert hidden == shown >= 1
        assert "interrupted" not in stream.getvalue()


def test_cells_that_cannot_run_are_no_unproven_configurations(cell, monkeypatch, tmp_path):
    counts = []

    class Counter(session.Listener):
        def verification_ended(self, equal, kinds, reused, seconds):
            counts.append((equal, kinds, reused))

    monkeypatch.setattr(session.certify, "certify_requests", lambda *_, **__: 0)
    requests = [
        cell(framework=framework, kernel=kernel).request(1)
        for framework, kernel in (("reference", "numpy"), ("mxnet", "numpy"), ("torch", "onednn"))
    ]
    # MXNet has no such kernel, and there is no environment of PyTorch.
    environments = {"reference": fake_framework.own_environment()}
    environments["mxnet"] = environments["reference"]
    context = LaunchContext(Store(tmp_path / "results"), environments)
    session.Session(context, Counter()).certify(requests)
    assert counts == [(0, 1, 0)]


def test_a_repeated_verification_is_said_to_be_an_earlier_one(cell, monkeypatch, tmp_path, capsys):
    cache = fake_framework.make_cache(tmp_path / "cache")
    monkeypatch.setenv("XFBENCH_HOME", str(cache))
    store = Store(tmp_path / "results")
    environments = {"reference": fake_framework.own_environment()}
    requests = [cell(framework="reference", kernel="numpy").request(n) for n in (1, 2)]
    for count in (1, 0):
        unproven = session.count_unproven(requests, {})
        assert (unproven.configurations, unproven.batches) == (count, count)
        context = LaunchContext(store, dict(environments))
        session.Session(context, progress.Messages()).certify(requests)
    [first, second] = [line for line in capsys.readouterr().err.splitlines() if " of 1 " in line]
    assert first.startswith("1 of 1 configurations proven equal in ")
    assert second == "1 of 1 configurations proven equal (all by an earlier verification)"


def test_what_is_not_verified_here_is_not_counted_as_unproven(cell, monkeypatch, tmp_path):
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    here, submitted = cell(), cell(launcher="slurm")
    unsupported, probe = cell(framework="mxnet", kernel="numpy"), cell(probe="process")
    requests = [each.request(1) for each in (here, submitted, unsupported, probe)]
    unproven = session.count_unproven(requests, {})
    assert (unproven.configurations, unproven.batches) == (1, 1)
    assert session.count_unproven(requests[1:], {}).describe() == ""
    larger = cell(global_batch_size=8, batch_size_per_rank=8).request(1)
    torch = cell(framework="torch", kernel="onednn").request(1)  # there is no environment yet
    assert session.count_unproven([*requests, larger, torch], {}).describe() == (
        "2 configurations and 3 timed batch sizes are not proven equal yet: verification comes "
        "first. A configuration took 5 s (LeNet), 2 min (AlexNet) and up to 50 "
        "min (ResNet-101 with XLA)"
    )


def test_resumed_plans_leave_out_recorded_launches(run, plan):
    run_plan, store = run
    first = run_plan(requests=plan.requests[:2])
    rest = run_plan(resume=True)
    assert [record.request.launch for record in first + rest] == [1, 2, 3]
    assert session.find_done(plan, store) == []
    resumed = plan.model_copy(update={"resume": True})
    assert len(session.find_done(resumed, store)) == 3
    assert session.preview(resumed, store).requests == ()
    assert run_plan(resume=True) == []


@pytest.fixture
def verify_calls(monkeypatch, tmp_path):
    """Batch sizes by call of `verify_batch_sizes`, of an empty cache. All networks are equal.

    The last item says what the next call returns. If it is an exception, the call raises it.
    """
    monkeypatch.setenv("XFBENCH_HOME", str(fake_framework.make_cache(tmp_path / "cache")))
    calls = ["equal"]

    def verify_batch_sizes(verifier, request, found, batch_sizes, seed):
        verdict = calls.pop()
        calls.extend([*batch_sizes, verdict])
        if isinstance(verdict, Exception):
            raise verdict
        return {size: Verdict(request, verdict, "wrong") for size in batch_sizes}

    monkeypatch.setattr(certify.timed_batch, "verify_batch_sizes", verify_batch_sizes)
    monkeypatch.setattr(
        certify, "verify_after_single_rank", lambda _, request, *__: Verdict(request, "equal")
    )
    return calls


def build_row(store):
    certificates = certificate.read_certificates(store.folder)
    [table] = leaderboard.build_tables(store.records(), certificates)
    [row] = (*table.rows, *table.unranked)
    return row


@pytest.mark.parametrize("verdict", ["equal", "different"])
def test_a_resumed_run_verifies_finished_launches_of_an_earlier_version(
    run, plan, verify_calls, verdict
):
    """They are ranked, or not, as if nothing had been interrupted."""
    run_plan, store = run
    requests = plan.requests[:1]
    run_plan(requests=requests)
    assert build_row(store).reason == leaderboard.NO_CERTIFICATE
    verify_calls[:] = [verdict]
    assert run_plan(requests=requests, resume=True) == []
    assert verify_calls == [verdict]  # the run does not verify
    assert run_plan(requests=requests, resume=True, verify=True) == []
    assert verify_calls == [4, verdict]
    row = build_row(store)
    assert row.certificate and row.batch_certificate
    expected = None if verdict == "equal" else "verified as different: at a batch of 4: "
    assert row.reason is expected or row.reason.startswith(expected)
    resumed = plan.model_copy(update={"requests": requests, "resume": True, "verify": True})
    done = session.find_done(resumed, store)
    assert session.list_requests_to_verify(resumed, done, store) == ()
    assert session.list_requests_to_verify(resumed, [], store) == requests


def test_a_resumed_run_does_not_repeat_what_failed_or_would_cover_nothing(run, plan, verify_calls):
    run_plan, store = run
    verify_calls[:] = [CheckError("out of memory")]
    resumed = plan.model_copy(
        update={"requests": plan.requests[:1], "resume": True, "verify": True}
    )
    [record] = run_plan(requests=resumed.requests, verify=True)
    assert record.batch_unproven_reason == "out of memory"
    assert session.list_requests_to_verify(resumed, [record], store) == ()

    untried = vary_record(record, batch_unproven_reason=None)
    assert session.list_requests_to_verify(resumed, [untried], store) == resumed.requests
    software = untried.software.model_copy(update={"environment_digest": "sha256:" + "0" * 64})
    in_earlier_environment = vary_record(untried, software=software, certificate=None)
    assert session.list_requests_to_verify(resumed, [in_earlier_environment], store) == ()


def test_how_a_plan_is_run_is_not_part_of_its_files(plan, tmp_path):
    """A repeated command finds the job of an earlier one by the plan's digest."""
    changed = plan.model_copy(
        update={"resume": True, "submission": Submission(minutes=9), "bundle": tmp_path}
    )
    assert changed.job_name() == plan.job_name()
    reordered = plan.model_copy(update={"requests": plan.requests[::-1]})
    assert reordered.requests != plan.requests and reordered.job_name() == plan.job_name()
    assert changed.model_dump_json() == plan.model_dump_json()


def test_only_the_session_prepares_environments_and_launches():
    callers = {name: set() for name in RESERVED}
    for module, file in MODULES.items():
        for node in ast.walk(ast.parse(Path(file).read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", None))
                if name in RESERVED:
                    callers[name].add(module)
    for name, modules in callers.items():
        callers[name] = {m for m in modules if not m.startswith("xfbench.environments.")}
    assert callers == RESERVED


def test_functions_of_the_command_line_are_short():
    """They parse, call one function of the package, and print."""
    lengths = {
        f"{module}.{node.name}": node.end_lineno - node.lineno + 1
        for module, file in MODULES.items()
        if module.startswith("xfbench.cli")
        for node in ast.walk(ast.parse(Path(file).read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert len(lengths) > 50
    assert {name: length for name, length in lengths.items() if length > 60} == {}


@pytest.fixture
def launch_made_up(monkeypatch, tmp_path, record, cell):
    """Return a function that launches cells until their protocol ends.

    The launches are made-up records: `speeds[framework](number)` is the speed of a launch. The
    function returns the frameworks of the launches in their order. Its `messages` are those of the
    session.
    """
    messages = []

    class Messages(session.Listener):
        def message(self, text):
            messages.append(text)

    def launch(protocol, speeds):
        def make_record(request, context, protocol=None):
            speed = speeds[request.framework](request.launch)
            made_up = vary_record(
                record((4 / (speed or 1),), request.launch),
                request=dict(request),
                status="ok" if speed else "failed",
                reason=None if speed else "out of memory",
            )
            return made_up, context.store.create_run_folder(), ""

        monkeypatch.setattr(session, "run_launch", make_record)
        cells = [cell(framework=framework) for framework in speeds]
        requests = [each.request(number) for number in range(1, 21) for each in cells]
        runner = session.Session(LaunchContext(Store(tmp_path / "results")), Messages())
        records = runner.launch(requests, dict.fromkeys(cells, protocol))
        return [each.request.framework for each in records]

    launch.messages = messages
    return launch


def noise(number):
    """Return a factor that depends on the number of the launch only, between 0.9 and 1.1."""
    return 1 + 0.1 * math.sin(7 * number)


def test_launches_end_when_the_order_is_known(launch_made_up):
    speeds = {
        "quick": lambda number: 200 * noise(number),
        "medium": lambda number: 100 * noise(number + 0.001),
        "also_medium": lambda number: 100.1 * noise(number),
    }
    ranked = Protocol(least=3, most=20, precision=0.02, ranked=True)
    assert launch_made_up(ranked, speeds) == [*speeds] * 3
    assert len(launch_made_up(Protocol(precision=0.02), speeds)) == 60


def test_launches_go_on_while_they_may_tell_the_order(launch_made_up):
    speeds = {
        "one": lambda number: 110 * noise(number),
        "another": lambda number: 100 * noise(3 * number + 1),
    }
    ranked = Protocol(least=3, most=20, precision=0.02, ranked=True)
    assert len(launch_made_up(ranked, speeds)) >= 16


def test_launches_end_when_they_would_hardly_tell_the_order(launch_made_up):
    speeds = {
        "one": lambda number: 100 * noise(number),
        "another": lambda number: 100 * noise(3 * number + 1),
    }
    ranked = Protocol(least=3, most=20, precision=0.001, ranked=True)
    launches = launch_made_up(ranked, speeds)
    assert 6 <= len(launches) < 40
    assert launches == [*speeds] * (len(launches) // 2)
    [message] = launch_made_up.messages
    assert message.startswith("lenet: no more launches, because the probability")


def test_cells_stay_together_until_each_is_precise_and_blocks_are_complete(launch_made_up):
    speeds = {
        "quiet": lambda number: 100 + number / 100,
        "noisy_at_first": lambda number: 100 if number > 3 else 80 + 5 * number,
        "also_quiet": lambda number: 50.0,
    }
    launches = launch_made_up(Protocol(precision=0.02), speeds)
    assert launches == [*speeds] * (len(launches) // 3)
    assert 5 < len(launches) // 3 < 20


def test_a_cell_that_always_fails_does_not_keep_the_others_waiting(launch_made_up):
    speeds = {"quiet": lambda number: 100.0, "failing": lambda number: None}
    assert launch_made_up(Protocol(precision=0.02), speeds) == [*speeds] * 5
