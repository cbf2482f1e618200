"""Probes as launches: their answers, the tables that omit them, and failed starts."""

import json
import os
from pathlib import Path

import pytest

from tests import debian
from tests.cluster import slurm
from tests.fake_framework import TWO_RANKS
from xfbench import statistics
from xfbench.analysis import leaderboard
from xfbench.base.errors import UnavailableError
from xfbench.execution import job_queue, probing
from xfbench.host import sites
from xfbench.launchers import mpi
from xfbench.model.features import FEATURES, GROUP_OF
from xfbench.model.plan import Plan
from xfbench.model.request import Protocol

DIFFERENT_PARAMETERS = "Trainer.parameters = lambda self: {'a': np.array([self.rank])}"
NATIVE_MODULE = "def join_and_count_ranks():\n    import os, time\n    {}\n"


@pytest.fixture(scope="session")
def programs():
    """Skip unless the programs of Open MPI and Lmod are installed, as on the test cluster."""
    if reason := slurm.missing_reason():
        debian.skip_test(f"neither mpirun nor Lmod: {reason}")
    assert Path(sites.Modules().init).exists()


@pytest.fixture
def run_probe(launch_fake):
    """Return a function that probes the fake framework and returns the record and run folder."""

    def run(probe, lines="", **request):
        return launch_fake(lines, affinity="cores", probe=probe, **request)

    return run


@pytest.fixture
def process_record(shared_fake_launch):
    """Return the record of a probe of a single process."""
    return shared_fake_launch(affinity="cores", probe="process")[0]


@pytest.fixture
def probe_ranks(launch_fake):
    """Return a function that probes two ranks and returns the answers by feature.

    `native` is the body of `join_and_count_ranks` in the adapter's native.py.
    """

    def probe(lines="", native=None, **request):
        files = {"native.py": NATIVE_MODULE.format(native)} if native else {}
        if request.get("launcher", "local") == "local" and len(os.sched_getaffinity(0)) < 2:
            pytest.skip("needs two CPUs")
        settings = {**TWO_RANKS, "probe": "ranks", "affinity": "cores", **request}
        record, _ = launch_fake(lines, adapter={"files": files}, **settings)
        return support_by_feature(record)

    return probe


def support_by_feature(record):
    """Return the answers of a probe's record, by feature."""
    return {support.feature: support for support in probing.support_of_record(record)}


def test_probe_answers_its_features_with_evidence(process_record):
    assert process_record.status == "ok", process_record.reason
    support = support_by_feature(process_record)
    assert set(support) == set(probing.features_tested_by_probe(process_record.request))
    assert support["affinity"].supported == "yes", support
    assert support["signal"].supported == "yes", support
    assert all(answer.evidence and "\n" not in answer.evidence for answer in support.values())
    assert set(support) <= set(FEATURES) == set(GROUP_OF)


def test_probe_detects_threads_that_leave_their_cpus(run_probe):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    all_cpus = sorted(os.sched_getaffinity(0))
    record, _ = run_probe("process", f"os.sched_setaffinity(0, {all_cpus})")
    answer = support_by_feature(record)["affinity"]
    assert record.status == "invalid" and answer.supported == "no"
    assert f"may run on {', '.join(map(str, all_cpus))}" in answer.evidence


def test_probe_is_not_in_tables_or_launch_counts(process_record):
    assert process_record.measurement and not statistics.counted_speeds_by_block([process_record])
    assert leaderboard.build_tables([process_record], {}) == []


def test_cell_without_a_probe_has_no_probe_field(cell):
    assert "probe" not in cell().request(1).cell_digest_fields()
    assert cell(probe="process").request(1).cell_digest_fields()["probe"] == "process"


def test_crashed_probe_means_no_and_unstartable_means_not_here(run_probe, monkeypatch):
    record, _ = run_probe("process", "def after_step(rank, steps): os._exit(7)")
    support = support_by_feature(record)
    assert record.status == "crashed"
    assert {answer.supported for answer in support.values()} == {"no"}
    assert "exit status 7" in support["signal"].evidence

    monkeypatch.setenv("PATH", "/nowhere")
    record, _ = run_probe("ranks", launcher="mpi")
    support = support_by_feature(record)
    assert record.status == "unavailable"
    assert support["mpirun"].supported == "not here" and "mpirun" in support["mpirun"].evidence


def test_ranks_with_equal_parameters_count_as_joined(probe_ranks):
    support = probe_ranks()
    assert support["ranks"].supported == support["joining"].supported == "yes"
    assert support["own_cores"].supported == "yes"
    assert support["fast_network"].supported in ("not here", "no")
    assert "side by side" in support["joining"].evidence


def test_ranks_with_different_parameters_do_not_count_as_joined(probe_ranks):
    support = probe_ranks(DIFFERENT_PARAMETERS)
    assert support["ranks"].supported == support["joining"].supported == "no"
    assert "different parameters" in support["ranks"].evidence


@pytest.mark.usefixtures("programs")
def test_mpirun_gives_ranks_their_positions(probe_ranks):
    support = probe_ranks(launcher="mpi")
    assert support["mpirun"].supported == "yes", support
    family = {"openmpi": "Open MPI's", "mpich": "MPICH's"}[mpi.detect_family("mpirun")]
    assert family in support["mpirun"].evidence
    assert ("PMIX_RANK" in support["pmix"].evidence) == (support["pmix"].supported == "yes")


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("native", "supported", "words"),
    [
        (
            "return int(os.environ.get('OMPI_COMM_WORLD_SIZE') or os.environ['PMI_SIZE'])",
            "yes",
            "2, 2",
        ),
        ("return 1", "no", "2 ranks were started, and they report 1, 1"),
        ("raise KeyError('RANK')", "no", "KeyError: 'RANK'"),
        ("os._exit(7)", "no", "exit status 7"),
        (None, "not here", "native.py"),
    ],
)
def test_native_probe_reports_whether_ranks_are_discovered(probe_ranks, native, supported, words):
    support = probe_ranks(probe="native", launcher="mpi", native=native)
    assert support["native"].supported == supported, support
    assert words in support["native"].evidence


@pytest.mark.usefixtures("programs")
def test_interpreter_from_a_module_trains(run_probe):
    record, folder = run_probe("modules")
    assert record.status == "ok", record.reason
    assert support_by_feature(record)["modules"].supported == "yes"
    text = (folder / "modules" / "xfbench-probe" / "1").read_text()
    assert text.startswith("#%Module1.0") and "prepend-path PATH" in text
    interpreter = json.loads((folder / "command.json").read_text())["argv"][0]
    assert Path(interpreter).name.startswith("python")


def test_missing_module_system_makes_modules_not_here(run_probe, tmp_path):
    site = tmp_path / "mine.toml"
    site.write_text('title = "t"\n[modules]\ninit = "/nowhere/init"\n')
    record, _ = run_probe("modules", site=str(site))
    assert record.status == "unavailable"
    answer = support_by_feature(record)["modules"]
    assert answer.supported == "not here" and "no module system" in answer.evidence


@pytest.mark.parametrize(("free", "there"), [(0, False), (3, True)])
def test_reserved_huge_pages_need_free_pages(tmp_path, free, there):
    file = tmp_path / "meminfo"
    file.write_text(f"HugePages_Total:       8\nHugePages_Free:  {free}\n")
    assert probing._has_reserved_huge_pages(file) is there
    assert probing._has_reserved_huge_pages(tmp_path / "nowhere") is False


def test_probe_without_free_huge_pages_starts_no_process(cell, monkeypatch):
    monkeypatch.setattr(probing, "_has_reserved_huge_pages", lambda: False)
    request = cell(probe="huge_pages").request(1)
    with pytest.raises(UnavailableError, match="HugePages_Free is 0"):
        probing.prepare_probe_environment(request, None, None, None)
    assert probing.probe_variables(request) == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"}
    assert probing.probe_variables(cell().request(1)) == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"framework": "torch", "strategy": "ddp"}, "ranks own_cores joining fast_network"),
        ({"framework": "torch", "strategy": "mpi"}, "mpich fast_mpi"),
        ({"framework": "torch", "strategy": "ddp", "launcher": "mpi"}, "mpirun pmix"),
        ({"framework": "torch", "strategy": "mpi", "launcher": "mpi"}, "mpi"),
        # Caffe joins ranks only through MPI.
        ({"framework": "caffe", "strategy": "mpi", "launcher": "mpi"}, "mpirun pmix mpi"),
        ({"framework": "caffe", "strategy": "mpi", "launcher": "slurm"}, "slurm"),
        ({"framework": "torch", "strategy": "ddp", "device": "cuda"}, "gpus"),
    ],
)
def test_rank_probe_features_depend_on_strategy_and_launcher(cell, settings, expected):
    sizes = {"ranks": 2, "global_batch_size": 8, "scaling": "weak"}
    request = cell(probe="ranks", **sizes, **settings).request(1)
    assert " ".join(probing.features_tested_by_probe(request)) == expected


def test_mpi_only_framework_has_no_native_joining(cell):
    sizes = {"ranks": 2, "global_batch_size": 8, "scaling": "weak"}
    request = cell(framework="caffe", strategy="mpi", probe="ranks", **sizes).request(1)
    place = {"told_by": ["PMI_RANK"], "own": [0], "cpus": [0], "parameters": "a", "updates": 5}
    place |= {"mpi": ["lib/libmpi.so.12"], "fast": ["mpich/libfabric.so.1"], "devices": []}
    places = [place, {**place, "own": [1], "cpus": [1]}]
    reply = {"support": [], "places": places, "observed": {}}
    support = {answer.feature: answer for answer in probing.build_probe_support(request, reply)}
    assert {name: answer.supported for name, answer in support.items()} == {
        **dict.fromkeys(("ranks", "own_cores", "mpich", "fast_mpi"), "yes"),
        **dict.fromkeys(("joining", "fast_network"), "no"),
    }
    assert "libmpi.so.12" in support["mpich"].evidence
    assert "libfabric.so.1" in support["fast_mpi"].evidence
    shared_places = [place, place]
    support = probing.build_probe_support(request, {**reply, "places": shared_places})
    assert [answer.supported for answer in support if answer.feature == "own_cores"] == ["no"]


@pytest.mark.parametrize(("launcher", "expected"), [("mpi", "native"), ("slurm", "native_slurm")])
def test_native_probe_feature_depends_on_the_launcher(cell, launcher, expected):
    assert probing.features_tested_by_probe(cell(probe="native", launcher=launcher).request(1)) == (
        expected,
    )


def test_only_slurm_launches_are_submitted_as_jobs(cell, monkeypatch):
    cells = [cell(probe="ranks", launcher=name) for name in ("local", "slurm")]
    pairs = tuple((chosen_cell, Protocol.fixed(1)) for chosen_cell in cells)
    plan = Plan(
        requests=tuple(chosen_cell.request(1) for chosen_cell in cells),
        protocols=pairs,
        pythons={},
        verify=False,
        strict=False,
        time_limit=1,
    )
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    local_plan, job_plan = job_queue.split_local_and_submitted(plan)
    assert [request.launcher for request in local_plan.requests] == ["local"]
    assert [request.launcher for request in job_plan.requests] == ["slurm"]
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    local_plan, job_plan = job_queue.split_local_and_submitted(plan)
    assert len(local_plan.requests) == 2 and not job_plan.requests
