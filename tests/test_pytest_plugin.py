"""Tests of the pytest plugin in real sessions, by the output of pytest-benchmark."""

import json
import sys

import pytest

from tests import fake_framework
from xfbench.analysis.leaderboard import build_tables
from xfbench.benchmarks import architectures
from xfbench.environments import environment
from xfbench.equality import certify
from xfbench.equality.verify import Verdict
from xfbench.exchange.replay import ReplayTimer
from xfbench.execution import canary
from xfbench.host import machine
from xfbench.host.roofline import usual_matrix_product
from xfbench.model import adapter, certificate
from xfbench.store.results_folder import Store
from xfbench.workloads import workloads

pytest_plugins = ["pytester"]

# A trainer that reads the duration of a step from a file and writes a line for each step.
PACED = """
FOLDER = Path({folder!r})
EXPECTED_LOSS = {loss!r}
class Trainer(FakeTrainer):
    def step(self, batch):
        with (FOLDER / "steps").open("a") as file: file.write("step\\n")
        time.sleep(float((FOLDER / "seconds").read_text()))
"""
NO_LENET = [{"workload": "lenet", "reason": "it has no LeNet"}]


@pytest.fixture
def session(pytester, monkeypatch):
    """A function that runs pytest on the benchmarks, with no framework installed in the cache."""
    canary.compute_expected_loss_before_training(
        "lenet", "synthetic", 64, 0, "float32"
    )  # computed once, not for each session
    cache = fake_framework.make_cache(pytester.path / "cache")
    monkeypatch.setenv("XFBENCH_HOME", str(cache))
    for name in ("XFBENCH_RESULTS", "XFBENCH_ADAPTERS"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        return pytester.runpytest_subprocess("--pyargs", "xfbench", *arguments, timeout=120)

    return run


@pytest.fixture
def session_here(session, pytester):
    """Like `session`, but within this process; faster for sessions without launches."""
    return lambda *arguments: pytester.runpytest_inprocess("--pyargs", "xfbench", *arguments)


@pytest.fixture
def trainer(fake_adapter, pytester):
    """A function that adds an adapter whose steps take `seconds`."""

    def make(name="paced", extra_code="", seconds=0.04, **description):
        (pytester.path / "seconds").write_text(str(seconds))
        loss = canary.compute_expected_loss_before_training(
            "lenet", "synthetic", 64, 0, "float32"
        ).loss
        code = PACED.format(folder=str(pytester.path), loss=loss)
        fake_adapter(code + extra_code, name, **description)

    return make


def read_report(pytester):
    """Return pytest-benchmark's JSON; raise ValueError for NaN or Infinity."""

    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    return json.loads((pytester.path / "out.json").read_text(), parse_constant=refuse)


def read_records(pytester, folder="results"):
    return list(Store(pytester.path / folder).records())


def test_benchmark_rounds_are_the_steps_of_the_record(session, pytester):
    session(
        *("--benchmark-only", "--benchmark-json=out.json", "--xfbench-framework=reference"),
        *("--xfbench-workload=lenet", "--xfbench-steps=3", "--xfbench-results=kept"),
    ).assert_outcomes(passed=1)
    [record] = read_records(pytester, "kept")
    [benchmark] = read_report(pytester)["benchmarks"]
    seconds = list(record.measurement.step_seconds)
    stats = benchmark["stats"]
    assert len(seconds) == 3
    assert stats["data"] == seconds
    assert (stats["min"], stats["max"]) == (min(seconds), max(seconds))
    assert (stats["rounds"], stats["iterations"]) == (3, 1)
    assert benchmark["options"]["timer"] == "recorded_step_seconds"
    request = record.request
    assert benchmark["params"] == {
        "workload": "lenet",
        "framework": "reference",
        "kernel": "numpy",
        "device": "cpu",
        "threads": request.threads,
    }
    median = sorted(seconds)[1]
    assert benchmark["extra_info"] == {
        "record": record.id,
        "status": "ok",
        "certificate": None,
        "batch_certificate": None,
        "framework": "reference",
        "version": record.observed.framework_version,
        "kernel": "numpy",
        "threads": record.observed.threads,
        "workload": "lenet",
        "device": "cpu",
        "precision": "float32",
        "batch_size": request.global_batch_size,
        "images_per_second": pytest.approx(request.global_batch_size / median, rel=1e-12),
        "share_of_peak": pytest.approx(
            2
            * record.workload.train_macs_per_image
            * request.global_batch_size
            / median
            / usual_matrix_product(record.limit).value
        ),
        "steady": True,
    }


@pytest.mark.deep
def test_existing_certificate_covers_a_benchmark(session, pytester, cell):
    size = workloads()["lenet"].batch_size
    benchmark_cell = cell(
        threads=machine.usable_cores(), global_batch_size=size, batch_size_per_rank=size
    )
    python_environment = environment.ensure_environment(adapter.load("reference"))
    proof = certify.store_verdict_unless_unsupported(
        Verdict(benchmark_cell.request(1), "equal"), python_environment, seed=0
    )
    session(
        *("--benchmark-only", "--xfbench-framework=reference", "--xfbench-workload=lenet"),
        *("--xfbench-steps=2", "--xfbench-results=kept"),
    ).assert_outcomes(passed=1)
    [record] = read_records(pytester, "kept")
    assert record.certificate == proof.id
    [table] = build_tables([record], certificate.read_certificates(pytester.path / "kept"))
    assert [row.rank for row in table.rows] == [(1, 1)]


@pytest.mark.deep
def test_a_session_compares_its_cells_with_the_references_of_records(session, pytester, cell):
    size = workloads()["lenet"].batch_size
    benchmark_cell = cell(
        threads=machine.usable_cores(), global_batch_size=size, batch_size_per_rank=size
    )
    python_environment = environment.ensure_environment(adapter.load("reference"))
    certify.store_verdict_unless_unsupported(
        Verdict(benchmark_cell.request(1), "equal"), python_environment, seed=0
    )
    benchmarks = (
        *("--benchmark-only", "--xfbench-framework=reference", "--xfbench-workload=lenet"),
        *("--xfbench-steps=3", "--xfbench-results=kept"),
    )
    session(*benchmarks, "--benchmark-json=out.json").assert_outcomes(passed=1)
    [measured] = read_report(pytester)["benchmarks"]
    command = "-m xfbench results references --format pytest-benchmark --results kept".split()
    printed = pytester.run(sys.executable, *command)
    assert printed.ret == 0, printed.stderr.str()
    document = json.loads(printed.stdout.str())
    [reference] = document["benchmarks"]
    for name in ("group", "name", "fullname", "params", "param"):
        assert reference[name] == measured[name]
    del measured["stats"]["data"]
    assert reference["stats"] == measured["stats"]

    # References of a machine that is a thousand times as fast.
    for name in ("min", "max", "mean", "median"):
        reference["stats"][name] /= 1000
    (pytester.path / "before.json").write_text(json.dumps(document))
    slower = session(
        *(*benchmarks, "--benchmark-compare=before.json"), "--benchmark-compare-fail=median:1000%"
    )
    assert "Performance has regressed" in slower.stdout.str() + slower.stderr.str()
    slower.stdout.fnmatch_lines_random(["*lenet-reference*(before)*", "*lenet-reference*(NOW)*"])


def test_without_frameworks_the_reference_is_measured(session_here):
    result = session_here("--benchmark-only", "--collect-only", "-q")
    cells = [line.partition("[")[2] for line in result.outlines if "::test_training[" in line]
    threads = machine.usable_cores()
    assert cells == [
        f"lenet-reference-numpy-cpu-{threads}]",
        f"convnet-reference-numpy-cpu-{threads}]",
    ]


@pytest.mark.deep
def test_a_bad_launch_fails_with_its_reason_alone(session, trainer, pytester):
    trainer("good")
    trainer("ended", "Trainer.step = lambda self, batch: os._exit(7)")
    trainer("raising", "Trainer.step = lambda self, batch: 1 / 0")
    trainer("diverged", "Trainer.wait_for_loss = lambda self: float('nan')")
    forged = "import xfbench.worker.loop as loop; loop.perf_counter = lambda: {}"
    trainer("forged", forged.format("0.0"))
    trainer("unclocked", forged.format("float('nan')"))
    result = session(
        *("--benchmark-only", "--benchmark-json=out.json", "--xfbench-workload=lenet"),
        "--xfbench-framework=ended,raising,good,diverged,forged,unclocked",
    )
    result.assert_outcomes(passed=1, failed=5)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    [benchmark] = read_report(pytester)["benchmarks"]
    assert benchmark["extra_info"]["framework"] == "good"
    result.stdout.fnmatch_lines_random(
        [
            "crashed: no reply: it ended with exit status 7*",
            "failed: ZeroDivisionError: division by zero",
            "invalid: the loss of update 1 is not finite",
            "invalid: a step took 0 s: the clock went backwards or stood still",
            "crashed: the reply is invalid:*finite number*",
        ]
    )
    # A set, because pytest repeats each reason in its summary if CI is set.
    folders = {line.split(": ")[1] for line in result.outlines if line.startswith("run folder: ")}
    assert len(folders) == 5
    for folder in folders:
        assert (pytester.path / folder / "command.sh").is_file()
    assert sorted(record.status for record in read_records(pytester)) == sorted(
        ["ok", "crashed", "failed", "invalid", "invalid", "crashed"]
    )
    assert "not used" not in result.stdout.str()  # pytest-benchmark's warning about unused fixtures


@pytest.mark.deep
def test_an_unavailable_framework_is_skipped_with_the_reason(session, trainer, pytester):
    trainer("good")
    trainer("refused", unsupported=NO_LENET)
    raises = "from xfbench.worker.protocol import Unsupported\nraise Unsupported('{}')"
    trainer("choosy", raises.format("not with these layers"))
    trainer("absent", module="no_such_module")
    result = session(
        *("--benchmark-only", "--benchmark-json=out.json", "--xfbench-workload=lenet", "-rs"),
        "--xfbench-framework=refused,choosy,absent,good",
    )
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines_random(
        [
            "SKIPPED*unsupported: it has no LeNet",
            "SKIPPED*unsupported: not with these layers",
            "SKIPPED*unavailable: *cannot import no_such_module*",
        ]
    )
    assert len(read_report(pytester)["benchmarks"]) == 1


@pytest.mark.deep
def test_session_with_only_skipped_benchmarks_succeeds(session, trainer, pytester):
    trainer("refused", unsupported=NO_LENET)
    result = session(
        *("--benchmark-only", "--benchmark-json=out.json", "--xfbench-workload=lenet"),
        "--xfbench-framework=refused",
    )
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.OK
    assert not (pytester.path / "out.json").exists()


@pytest.mark.deep
def test_disabled_benchmark_runs_one_step_and_keeps_no_results(session, trainer, pytester):
    trainer()
    result = session(
        *("--benchmark-disable", "--xfbench-framework=paced", "--xfbench-workload=lenet"),
        "--benchmark-json=out.json",
    )
    result.assert_outcomes(passed=1)
    expected_steps = 2
    assert len((pytester.path / "steps").read_text().splitlines()) == expected_steps
    assert not (pytester.path / "results").exists()
    assert not (pytester.path / "out.json").exists()


@pytest.mark.deep
def test_disabled_benchmark_fails_when_its_launch_fails(session, trainer):
    trainer("raising", "Trainer.step = lambda self, batch: 1 / 0")
    result = session("--benchmark-disable", "--xfbench-framework=raising")
    result.assert_outcomes(failed=2)


@pytest.mark.deep
def test_only_a_slower_session_fails_the_comparison(session, trainer, pytester):
    cells = ("--benchmark-only", "--xfbench-framework=paced", "--xfbench-workload=lenet")
    comparison_options = ("--benchmark-compare=0001", "--benchmark-compare-fail=median:400%")
    trainer(seconds=0.1)
    session(*cells, "--benchmark-save=base").assert_outcomes(passed=1)
    equal_session = session(*cells, *comparison_options)
    assert equal_session.ret == pytest.ExitCode.OK, equal_session.stdout.str()
    equal_session.stdout.fnmatch_lines(["*paced*(0001_base)*"])
    (pytester.path / "seconds").write_text("1")
    slower_session = session(*cells, *comparison_options)
    assert slower_session.ret != pytest.ExitCode.OK
    assert "Performance has regressed" in slower_session.stdout.str() + slower_session.stderr.str()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--xfbench-arch=kln", "unknown architecture 'kln': did you mean knl?"),
        ("--xfbench-framework=torch,refrence", "framework 'refrence': did you mean reference?"),
        ("--xfbench-workload=lennet", "unknown workload 'lennet': did you mean lenet?"),
        ("--xfbench-steps=0", "'0' is not a positive integer"),
    ],
)
def test_wrong_option_ends_the_session_with_a_usage_error(session_here, option, message):
    result = session_here(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


@pytest.mark.skipif(
    machine.describe_machine().microarchitecture == "mic_knl", reason="this machine is a Xeon Phi"
)
def test_cells_of_another_architecture_are_skipped(session_here):
    result = session_here("--benchmark-only", "--xfbench-arch=knl", "-rs", "-v")
    result.assert_outcomes(skipped=6)
    microarchitecture = machine.describe_machine().microarchitecture
    result.stdout.fnmatch_lines([f"SKIPPED*not Xeon Phi*: its processor is {microarchitecture}"])
    for threads in (32, 64, 128):
        assert f"lenet-reference-numpy-cpu-{threads}]" in result.stdout.str()


@pytest.mark.parametrize(
    ("name", "fields", "fits"),
    [
        ("host", {}, True),
        ("knl", {"microarchitecture": "mic_knl"}, True),
        ("knl", {"microarchitecture": "skylake_avx512"}, False),
        ("skx", {"microarchitecture": "skylake_avx512"}, True),
        ("skx", {"microarchitecture": "zen4"}, False),
        ("k40", {"accelerators": ("Tesla K40m",)}, True),
        ("k40", {"accelerators": ()}, False),
        ("p100", {"accelerators": ("Tesla P100-SXM2-16GB",)}, True),
        ("v100", {"accelerators": ("Tesla P100-SXM2-16GB",)}, False),
        ("v100", {"accelerators": ("Tesla V100-SXM2-16GB",)}, True),
    ],
)
def test_a_profile_fits_by_processor_or_accelerator(name, fields, fits):
    machine_description = machine.describe_machine().model_copy(
        update={"accelerators": (), **fields}
    )
    reason = architectures.load(name).mismatch_reason(machine_description)
    assert (reason is None) is fits
    if reason:
        assert architectures.load(name).title in reason


def test_gpu_profiles_use_the_cuda_device():
    for name in ("k40", "p100", "v100"):
        [cell] = architectures.build_cells(architectures.load(name), ["torch"], ["lenet"], 1)
        assert cell.device == "cuda"


def test_help_lists_every_profile(session_here):
    text = " ".join(session_here("--help").stdout.str().split())
    assert f"host (default), {', '.join(architectures.list_machine_profile_names()[1:])}." in text


def test_a_plain_session_skips_the_benchmarks_with_advice(session_here, pytester):
    result = session_here("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*run them with --benchmark-only"])
    assert not (pytester.path / "results").exists()


def test_benchmarks_named_by_their_path_are_collected(pytester, session):
    folder = architectures.paths.package_folder("xfbench.benchmarks")
    result = pytester.runpytest_inprocess(folder / "test_cells.py", "--collect-only", "-q")
    assert "lenet-reference-numpy-cpu" in result.stdout.str()


@pytest.mark.deep
def test_unused_plugin_imports_only_itself(pytester):
    pytester.makepyfile(
        "import sys\ndef test_it():\n    print('loaded', *sorted(sys.modules), file=sys.__stdout__)"
    )

    def loaded_modules(*arguments):
        lines = pytester.runpytest_subprocess("-s", *arguments).outlines
        return set(next(line for line in lines if "loaded " in line).split())

    assert loaded_modules() - loaded_modules("-p", "no:xfbench") == {
        "xfbench",
        "xfbench.pytest_plugin",
    }


def test_a_replay_gives_the_recorded_floats_back_once():
    durations = (0.1, 0.30000000000000004, 1e-9)
    replay = ReplayTimer()
    replay.set_next_durations(durations)
    assert tuple(-replay() + replay() for _ in durations) == durations
    with pytest.raises(RuntimeError, match="more often"):
        replay()
