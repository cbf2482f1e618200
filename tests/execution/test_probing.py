"""Probes as launches: what their records say, where they do not stand, what cannot be tried."""

import json
import os
from pathlib import Path

import pytest

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

OWN = "Trainer.parameters = lambda self: {'a': np.array([self.rank])}"
NATIVE = "def ranks():\n    import os, time\n    {}\n"


@pytest.fixture(scope="session")
def programs():
    """Open MPI's and Lmod's, which the cluster has too."""
    if reason := slurm.missing():
        pytest.skip(f"neither mpirun nor Lmod: {reason}")
    assert Path(sites.Modules().init).exists()


@pytest.fixture
def tried(launch):
    """A function: one probe of the fake framework; its record and run folder."""

    def do(probe, lines="", **request):
        return launch(lines, affinity="cores", probe=probe, **request)

    return do


@pytest.fixture
def process(shared_launch):
    """The record of a probe of one process."""
    return shared_launch(affinity="cores", probe="process")[0]


@pytest.fixture
def together(launch):
    """A function: one probe of two ranks, which may have a native.py; its answers by feature."""

    def do(lines="", native=None, **request):
        files = {"native.py": NATIVE.format(native)} if native else {}
        if request.get("launcher", "local") == "local" and len(os.sched_getaffinity(0)) < 2:
            pytest.skip("two ranks need two processors")
        settings = {**TWO_RANKS, "probe": "ranks", "affinity": "cores", **request}
        record, _ = launch(lines, adapter={"files": files}, **settings)
        return answers(record)

    return do


def answers(record):
    """What the record says, by feature."""
    return {one.feature: one for one in probing.support_of_record(record)}


def test_probe_answers_its_features_with_evidence(process):
    assert process.status == "ok", process.reason
    found = answers(process)
    assert set(found) == set(probing.probed_features(process.request))
    assert found["affinity"].supported == "yes", found
    assert found["signal"].supported == "yes", found
    assert all(one.evidence and "\n" not in one.evidence for one in found.values())
    assert set(found) <= set(FEATURES) == set(GROUP_OF)


def test_probe_detects_threads_that_leave_their_cpus(tried):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU is no choice")
    everywhere = sorted(os.sched_getaffinity(0))
    record, _ = tried("process", f"os.sched_setaffinity(0, {everywhere})")
    found = answers(record)["affinity"]
    assert record.status == "invalid" and found.supported == "no"
    assert f"may run on {', '.join(map(str, everywhere))}" in found.evidence


def test_probe_is_not_in_tables_or_launch_counts(process):
    assert process.measurement and not statistics.launch_speeds([process])
    assert leaderboard.tables([process], {}) == []


def test_cell_without_a_probe_has_no_probe_field(cell):
    assert "probe" not in cell().request(1).cell_fields()
    assert cell(probe="process").request(1).cell_fields()["probe"] == "process"


def test_crashed_probe_means_no_and_unstartable_means_not_here(tried, monkeypatch):
    record, _ = tried("process", "def after_step(rank, steps): os._exit(7)")
    found = answers(record)
    assert record.status == "crashed"
    assert {one.supported for one in found.values()} == {"no"}
    assert "exit status 7" in found["signal"].evidence

    monkeypatch.setenv("PATH", "/nowhere")
    record, _ = tried("ranks", launcher="mpi")
    found = answers(record)
    assert record.status == "unavailable"
    assert found["mpirun"].supported == "not here" and "mpirun" in found["mpirun"].evidence


def test_ranks_with_equal_parameters_count_as_joined(together):
    found = together()
    assert found["ranks"].supported == found["joining"].supported == "yes"
    assert found["own_cores"].supported == "yes"
    assert found["fast_network"].supported in ("not here", "no")
    assert "side by side" in found["joining"].evidence


def test_ranks_with_different_parameters_do_not_count_as_joined(together):
    found = together(OWN)
    assert found["ranks"].supported == found["joining"].supported == "no"
    assert "different parameters" in found["ranks"].evidence


@pytest.mark.usefixtures("programs")
def test_mpirun_gives_ranks_their_positions(together):
    found = together(launcher="mpi")
    assert found["mpirun"].supported == "yes", found
    family = {"openmpi": "Open MPI's", "mpich": "MPICH's"}[mpi.detect_family("mpirun")]
    assert family in found["mpirun"].evidence
    assert ("PMIX_RANK" in found["pmix"].evidence) == (found["pmix"].supported == "yes")


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("native", "supported", "words"),
    [
        (
            "return int(os.environ.get('OMPI_COMM_WORLD_SIZE') or os.environ['PMI_SIZE'])",
            "yes",
            "2, 2",
        ),
        ("return 1", "no", "2 ranks were started, and find 1, 1"),
        ("raise KeyError('RANK')", "no", "KeyError: 'RANK'"),
        ("os._exit(7)", "no", "exit status 7"),
        (None, "not here", "native.py"),
    ],
)
def test_native_probe_reports_whether_ranks_are_discovered(together, native, supported, words):
    found = together(probe="native", launcher="mpi", native=native)
    assert found["native"].supported == supported, found
    assert words in found["native"].evidence


@pytest.mark.usefixtures("programs")
def test_interpreter_from_a_module_trains(tried):
    record, folder = tried("modules")
    assert record.status == "ok", record.reason
    assert answers(record)["modules"].supported == "yes"
    text = (folder / "modules" / "xfbench-probe" / "1").read_text()
    assert text.startswith("#%Module1.0") and "prepend-path PATH" in text
    assert json.loads((folder / "command.json").read_text())["argv"][0]


def test_missing_module_system_makes_modules_not_here(tried, tmp_path):
    site = tmp_path / "mine.toml"
    site.write_text('title = "t"\n[modules]\ninit = "/nowhere/init"\n')
    record, _ = tried("modules", site=str(site))
    assert record.status == "unavailable"
    told = answers(record)["modules"]
    assert told.supported == "not here" and "no module system" in told.evidence


@pytest.mark.parametrize(("free", "there"), [(0, False), (3, True)])
def test_reserved_huge_pages_need_free_pages(tmp_path, free, there):
    file = tmp_path / "meminfo"
    file.write_text(f"HugePages_Total:       8\nHugePages_Free:  {free}\n")
    assert probing._has_reserved_huge_pages(file) is there
    assert probing._has_reserved_huge_pages(tmp_path / "nowhere") is False


def test_probe_without_free_huge_pages_starts_no_process(cell, monkeypatch):
    monkeypatch.setattr(probing, "_has_reserved_huge_pages", lambda: False)
    asked = cell(probe="huge_pages").request(1)
    with pytest.raises(UnavailableError, match="HugePages_Free is 0"):
        probing.prepare_environment(asked, None, None, None)
    assert probing.probe_variables(asked) == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"}
    assert probing.probe_variables(cell().request(1)) == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"framework": "torch", "strategy": "ddp"}, "ranks own_cores joining fast_network"),
        ({"framework": "torch", "strategy": "mpi"}, "mpich fast_mpi"),
        ({"framework": "torch", "strategy": "ddp", "launcher": "mpi"}, "mpirun pmix"),
        ({"framework": "torch", "strategy": "mpi", "launcher": "mpi"}, "mpi"),
        # It has no other way.
        ({"framework": "caffe", "strategy": "mpi", "launcher": "mpi"}, "mpirun pmix mpi"),
        ({"framework": "caffe", "strategy": "mpi", "launcher": "slurm"}, "slurm"),
        ({"framework": "torch", "strategy": "ddp", "device": "cuda"}, "gpus"),
    ],
)
def test_rank_probe_features_depend_on_strategy_and_launcher(cell, settings, expected):
    sizes = {"ranks": 2, "global_batch_size": 8, "scaling": "weak"}
    asked = cell(probe="ranks", **sizes, **settings).request(1)
    assert " ".join(probing.probed_features(asked)) == expected


def test_mpi_only_framework_has_no_native_joining(cell):
    sizes = {"ranks": 2, "global_batch_size": 8, "scaling": "weak"}
    asked = cell(framework="caffe", strategy="mpi", probe="ranks", **sizes).request(1)
    place = {"told_by": ["PMI_RANK"], "own": [0], "cpus": [0], "parameters": "a", "updates": 5}
    place |= {"mpi": ["lib/libmpi.so.12"], "fast": ["mpich/libfabric.so.1"], "devices": []}
    places = [place, {**place, "own": [1], "cpus": [1]}]
    reply = {"support": [], "places": places, "observed": {}}
    found = {one.feature: one for one in probing.build_support(asked, reply)}
    assert {name: one.supported for name, one in found.items()} == {
        **dict.fromkeys(("ranks", "own_cores", "mpich", "fast_mpi"), "yes"),
        **dict.fromkeys(("joining", "fast_network"), "no"),
    }
    assert "libmpi.so.12" in found["mpich"].evidence
    assert "libfabric.so.1" in found["fast_mpi"].evidence
    both = [place, place]
    found = probing.build_support(asked, {**reply, "places": both})
    assert [one.supported for one in found if one.feature == "own_cores"] == ["no"]


@pytest.mark.parametrize(("launcher", "expected"), [("mpi", "native"), ("slurm", "native_slurm")])
def test_native_probe_feature_depends_on_the_launcher(cell, launcher, expected):
    assert probing.probed_features(cell(probe="native", launcher=launcher).request(1)) == (
        expected,
    )


def test_only_slurm_launches_are_submitted_as_jobs(cell, monkeypatch):
    cells = [cell(probe="ranks", launcher=name) for name in ("local", "slurm")]
    pairs = tuple((one, Protocol.fixed(1)) for one in cells)
    plan = Plan(
        requests=tuple(one.request(1) for one in cells),
        protocols=pairs,
        pythons={},
        verify=False,
        strict=False,
        time_limit=1,
    )
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    here, there = job_queue.split_plan(plan)
    assert [one.launcher for one in here.requests] == ["local"]
    assert [one.launcher for one in there.requests] == ["slurm"]
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    here, there = job_queue.split_plan(plan)
    assert len(here.requests) == 2 and not there.requests
