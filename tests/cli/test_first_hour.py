"""What a new user types in the first hour, and what the command line answers."""

import json
from itertools import product

import pytest

from xfbench.environments import environment, inventory
from xfbench.host import machine
from xfbench.store.results_folder import Store


@pytest.mark.parametrize("words", [(), ("study",), ("results",), ("env",), ("data",)])
def test_a_group_alone_prints_its_help(words, run_process):
    outcome = run_process(*words)
    assert outcome.returncode == 0, outcome.stderr
    assert "Commands" in outcome.stdout and len(outcome.stdout.splitlines()) > 5


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("compare torch mxnet", 2, "torch: neither a results folder nor a filter such as"),
        (
            "compare results results/README",
            2,
            "import it first: xfbench results import results",
        ),
        ("leaderboard --where framework=pytorch", 1, "framework is one of reference"),
        ("leaderboard --workload resnet50", 1, "workload is one of lenet"),
        ("results show zzz", 2, "no record id starts with 'zzz'"),
        ("run --until-precision 2", 2, "write 2% or 0.02"),
        ("run --framework torch --device quantum --dry-run", 2, "choose from cpu, cuda"),
        ("leaderboard --fields framwork", 2, "did you mean framework?"),
        ("leaderboard --fields threads --format json", 2, "--fields chooses columns"),
        ("report --output report.pdf", 2, "expected FILE.html"),
        ("tune --framework torch,mxnet --workload lenet", 2, "a search has one framework"),
        ("report --output nowhere/report.html", 2, "no such folder: nowhere"),
    ],
)
def test_a_mistake_gets_one_helpful_line(words, status, message, run_inline, results):
    outcome = run_inline(*words.split())
    assert outcome.returncode == status, outcome.stderr
    assert message in outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [
        "results export nowhere/all.csv",
        "results export nowhere/all.tar.gz",
        "results submit nowhere/away",
        "report --output nowhere/report.html",
        "report --figures nowhere/figures",
        "study report thread-sweep --output nowhere/answer.md",
        "study report thread-sweep --figures nowhere/figures",
        "trace -f reference -w lenet --output nowhere/numbers.npz",
    ],
)
def test_no_command_creates_a_folder_that_was_not_asked_for(command, run_inline, results, tmp_path):
    outcome = run_inline(*command.split())
    assert outcome.returncode == 2 and "no such folder: nowhere\n" in outcome.stderr
    assert [*tmp_path.iterdir()] == [results]


def test_gpu_means_cuda(run_inline):
    words = "run -f torch -w lenet --device gpu --launches 1 --launcher slurm --dry-run --json"
    outcome = run_inline(*words.split())
    assert "cuda" in outcome.stdout and outcome.returncode == 0, outcome.stderr


def test_a_dry_run_begins_with_the_cells_and_the_launches(run_inline):
    outcome = run_inline(*"run -f reference -w lenet --threads 1,2 --dry-run".split())
    first, *lines = outcome.stdout.splitlines()
    assert first.startswith("2 cells, 10 to 40 launches")
    assert sum(line.endswith("5 to 20 launches") for line in lines) == 2


def test_powers_are_numbers_of_threads(run_inline):
    words = "run -f reference -w lenet --threads powers --launches 1 --dry-run --json"
    requests = json.loads(run_inline(*words.split()).stdout)["requests"]
    assert {request["threads"] for request in requests} >= {1}
    assert max(request["threads"] for request in requests) == machine.usable_cores()


def test_more_threads_than_cores_are_said_before_the_run(run_inline):
    outcome = run_inline(*"run -f reference -w lenet --threads 640 --launches 1 --dry-run".split())
    assert "warning: 640 threads on" in outcome.stderr


@pytest.mark.deep
def test_a_quiet_run_prints_only_the_table(run_process, tmp_path):
    words = "run -f reference -w lenet --steps 2 --launches 1 --no-verify --quiet"
    outcome = run_process(*words.split(), "--results", str(tmp_path / "quiet"))
    assert outcome.returncode == 0 and outcome.stderr == ""
    assert "reference" in outcome.stdout


@pytest.fixture
def wide_results(record, tmp_path, monkeypatch):
    """Records with long texts in the results folder, and a machine with long texts."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    settings = {"workload": "lenet", "scaling": "weak", "data": "digits", "checkpoints": 2}
    for framework, launch in product(("torch", "mxnet"), (1, 2, 3)):
        steps = tuple(0.1 + 0.001 * ((7 * n + launch) % 5) for n in range(30))
        store.add(record(steps, launch, framework=framework, **settings))
    reason = "out of memory: RuntimeError was raised: you tried to allocate 33554432 bytes " * 2
    failed = {"status": "failed", "reason": reason, "measurement": None}
    store.add(record(fields=failed, framework="torch", workload="convnet"))
    store.add(record(framework="mxnet", workload="alexnet", threads=64))
    libraries = [f"libmpi_usempi_ignore_tkr-gfortran.so.{number}" for number in range(9)]
    monkeypatch.setattr(machine, "list_blas_openmp_mpi_cuda_libraries", lambda: libraries)
    environments = [
        {
            **{"framework": name, "version": "2.13.0+cpu", "python": "3.11.7", "kind": "managed"},
            **{
                "bytes": 10**9,
                "prefix": f"/home/a/.cache/xfbench/environments/{name}-f2f1a01f3",
            },
        }
        for name in ("tensorflow", "torch")
    ]
    monkeypatch.setattr(environment, "describe_existing_environments", lambda: environments)


@pytest.mark.parametrize(
    "words",
    [
        "results list",
        "results list --published",
        "framework list",
        "study list",
        "study show thread-sweep",
        "study show batch-size",
        "workload list",
        "workload show alexnet",
        "workload show googlenet",
        "data list",
        "env list",
        "machine",
        "leaderboard",
        "leaderboard --published",
        "compare framework=torch framework=mxnet",
        "compare --self workload=lenet",
        "predict -f torch --link 10Gbit,10us",
        "run -f torch,mxnet -w lenet --threads 1,2 --ranks 1,2 --scaling weak --dry-run",
        "study run thread-sweep --size smoke --dry-run",
        "tune -f torch -w lenet --dry-run",
    ],
)
def test_every_listing_fits_the_terminal(words, run_inline, wide_results, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    outcome = run_inline(*words.split())
    assert outcome.returncode == 0, outcome.stderr
    assert max(map(len, outcome.stdout.splitlines())) <= 80


def test_a_narrow_comparison_says_what_it_leaves_out(run_inline, wide_results, monkeypatch):
    words = "compare framework=torch framework=mxnet".split()
    monkeypatch.setenv("COLUMNS", "70")
    narrow = run_inline(*words).stdout
    assert "\nboth: A / B " in narrow and "Not shown, because lines are short" in narrow
    assert "detectable: a true ratio" not in narrow
    alone = run_inline("compare", "--self", "framework=torch").stdout
    assert "verdict [1]" in " ".join(alone.split())
    assert "\n[1] too few launches for an interval" in alone
    monkeypatch.setenv("COLUMNS", "180")
    wide = run_inline(*words).stdout
    assert "\nboth " in wide and "Not shown" not in wide and "detectable: a true" in wide


def test_framework_list_marks_devices_that_nobody_tried(run_inline, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = run_inline("framework", "list").stdout.splitlines()
    marked = {line.split()[0] for line in lines if "cuda (untested)" in line}
    assert marked == {*inventory.UNTESTED_DEVICES}


def test_tables_fit_unless_wide(run_inline, results, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run_inline("leaderboard").stdout
    assert max(map(len, narrow.splitlines())) <= 60 and "Not shown" in narrow
    wide = run_inline("leaderboard", "--wide").stdout
    assert max(map(len, wide.splitlines())) > 60 and "Not shown" not in wide
    tables = json.loads(run_inline("leaderboard", "--json").stdout)["tables"]
    assert tables


def test_a_comparison_as_markdown_has_a_summary_and_a_table(run_inline, record, tmp_path):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for threads, launch in product((1, 2), range(1, 6)):
        store.add(record((0.1 / threads + 0.0001 * launch,) * 3, launch, threads=threads))
    outcome = run_inline(*"compare threads=2 threads=1 --markdown".split())
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.startswith(
        "**Training speed: 1 without a verdict**\n\n- A: threads=2\n- B: threads=1\n"
        "- A and B: cpu · float32 · synthetic · batch 4\n"
        "- A and B: reference 1.0 on unknown machine\n"
    )
    assert "\n| both " in outcome.stdout


def test_a_comparison_has_one_form_of_output(run_inline):
    outcome = run_inline(*"compare threads=2 threads=1 --markdown --json".split())
    assert outcome.returncode == 2 and "--markdown and --json" in outcome.stderr


@pytest.mark.parametrize(
    "options",
    [
        "-f torch -w lenet",
        "--where framework=torch --where workload=lenet",
        "-f torch,caffe -w lenet",
    ],
)
def test_options_restrict_both_sides_of_a_comparison(options, run_inline, record, tmp_path):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    cells = product(("torch", "mxnet"), ("lenet", "convnet"), (1, 2), range(1, 3))
    for framework, workload, threads, launch in cells:
        settings = {"framework": framework, "workload": workload, "threads": threads}
        store.add(record((0.1 / threads,) * 3, launch, **settings))
    for sides in ("threads=2 threads=1", "--self threads=2"):
        outcome = run_inline(*f"compare {sides} {options} --json".split())
        assert outcome.returncode == 0, outcome.stderr
        [comparison] = json.loads(outcome.stdout)["comparisons"]
        assert comparison["a"].startswith("lenet · torch")
        assert json.loads(outcome.stdout).get("gaps", []) == []


@pytest.mark.parametrize("command", ["leaderboard", "results list", "results export all.csv"])
def test_records_are_selected_by_framework_and_workload(command, run_inline, record, tmp_path):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for framework, workload in product(("torch", "mxnet", "caffe"), ("lenet", "convnet")):
        store.add(record(framework=framework, workload=workload))
    outcome = run_inline(*f"{command} -f torch,mxnet -w lenet".split())
    assert outcome.returncode == 0, outcome.stderr
    exported = tmp_path / "all.csv"
    text = exported.read_text() if exported.exists() else outcome.stdout
    assert "torch" in text and "mxnet" in text and "lenet" in text
    assert "caffe" not in text and "convnet" not in text


def test_predict_takes_the_conditions_of_other_commands(run_inline, results):
    outcome = run_inline(*"predict -f reference -w lenet --where threads>=1".split())
    assert outcome.returncode == 2 and "no matching launches" in outcome.stderr


@pytest.mark.parametrize(
    "command",
    [
        "leaderboard -f zzz",
        "report -f zzz",
        "results list -f zzz",
        "results list -f zzz --json",
        "results list --published -f zzz",
        "results list --published --bibtex -f zzz",
        "results export all.csv -f zzz",
        "results export all.tar -f zzz",
        "results references -f zzz",
        "results references --format pytest-benchmark -f zzz",
        "results submit away -f zzz",
        "compare framework=zzz framework=reference",
        "compare framework=reference framework=zzz",
        "compare --self framework=zzz",
        "compare threads=1 threads=2 -f zzz",
        "predict -f zzz",
        "study report thread-sweep -f zzz",
    ],
)
def test_an_empty_selection_names_the_values_that_exist(command, run_inline, results, tmp_path):
    outcome = run_inline(*command.split())
    assert outcome.returncode == 1 and outcome.stdout == ""
    existing = "caffe, mxnet, tensorflow" if "--published" in command else "reference"
    assert f"framework is one of {existing}" in outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1
    assert [*tmp_path.iterdir()] == [results]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("results list -f tocrh", "framework is one of torch, caffe, mxnet"),
        ("results list --where threads=3", "threads is one of 1, 2, 10"),
        ("results list --where scaling=none", "none has a scaling"),
        ("results list -f caffe --where threads=2", "with request.threads=2, framework is one of"),
        ("compare --self machine=zzz", "machine is one of unknown machine"),
        ("compare --self framework=torch,threads=10", "with framework=torch, threads is one of 2"),
        ("compare --self framework=mxnet", "1 launch, the last of which has the status failed"),
    ],
)
def test_an_empty_selection_names_near_values_first(command, message, run_inline, record, tmp_path):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for framework, threads in (("torch", 2), ("caffe", 1), ("caffe", 10)):
        store.add(record(framework=framework, threads=threads))
    failed = {"status": "failed", "reason": "killed", "measurement": None}
    store.add(record(framework="mxnet", fields=failed))
    outcome = run_inline(*command.split())
    assert outcome.returncode == 1 and message in outcome.stderr
