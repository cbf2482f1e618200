"""The outline of a plan, before it is started."""

import os

import pytest

from tests.sample_records import vary_record
from xfbench.host import machine
from xfbench.model.plan import Plan, Submission
from xfbench.model.record import Conditions
from xfbench.model.request import Protocol
from xfbench.planning import outline, plan_builder
from xfbench.planning.outline import build_outline
from xfbench.planning.scheduling import launch_order
from xfbench.worker import affinity


def list_warnings(cell, **fields):
    """Return the warnings about a cell of a plan with these fields."""
    settings = {"pythons": {}, "verify": False, "strict": False, "time_limit": 60}
    plan = Plan(requests=(), protocols=(), **settings, **fields)
    return [*outline._list_warnings([cell], plan)]


@pytest.fixture
def build(cell):
    """Return a function that builds the outline of two cells, and the cells."""

    def build(protocol, records=(), obstacles=()):
        cells = [cell(threads=1), cell(threads=2)]
        pairs = tuple((each, protocol) for each in cells)
        plan = Plan(
            requests=tuple(launch_order(pairs)),
            protocols=pairs,
            pythons={},
            verify=False,
            strict=False,
            time_limit=60,
        )
        return build_outline(plan, dict(obstacles).get, records)

    return build


def test_launches_are_counted_at_least_and_at_most(build):
    built = build(Protocol(least=5, most=20, precision=0.02))
    assert built.describe().startswith("2 cells, 10 to 40 launches, time unknown")
    assert [each.describe().split(" · ")[-1] for each in built.cells] == ["5 to 20 launches"] * 2
    assert "2 cells, 6 launches" in build(Protocol.fixed(3)).describe()
    assert "2 cells, 2 launches" in build(Protocol.fixed(1)).describe()


def test_time_is_estimated_from_earlier_launches(build, record):
    earlier = vary_record(
        record(),
        conditions=Conditions(
            load_before=0, load_after=0, steal_seconds=0, swap_bytes=0, seconds=60.0
        ),
    )
    built = build(Protocol(least=5, most=20, precision=0.02), [earlier])
    assert built.describe().endswith("about 10 to 40 min")
    assert built.most_seconds == 2400


def test_cells_that_cannot_be_launched_come_first_with_the_reason(build, cell):
    obstacle = {cell(threads=2).request(1): ("unsupported", "one thread only")}
    built = build(Protocol.fixed(3), obstacles=obstacle)
    assert built.describe().startswith("1 cell, 3 launches")
    assert built.cells[0].describe().endswith("unsupported: one thread only")
    assert built.cells[1].describe().endswith("3 launches")


def test_without_earlier_launches_the_least_duration_is_known(cell):
    pair = (cell(min_seconds=5.0, min_warmup_seconds=1.0), Protocol(least=20, most=40))
    plan = Plan(
        requests=tuple(launch_order([pair])),
        protocols=(pair,),
        **{"pythons": {}, "verify": False, "strict": False, "time_limit": 60},
    )
    built = build_outline(plan, {}.get, [])
    assert built.describe().endswith(
        "20 to 40 launches, at least 4 min with about 5 s for each start, plus verification"
    )
    assert built.most_seconds == 40 * (5 + 1 + 5)  # decides whether to ask before the start


def test_more_threads_than_cpus_of_a_shared_socket_are_a_warning(cell, monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 4096)
    [group, *_] = affinity.group_cpus("sockets", os.sched_getaffinity(0))
    fields = {"affinity": "sockets", "threads": len(group), "strategy": "ddp", "scaling": "weak"}
    ranks = 2 * len(affinity.group_cpus("sockets", os.sched_getaffinity(0)))
    sizes = {"ranks": ranks, "batch_size_per_rank": 4, "global_batch_size": 4 * ranks}
    [warning] = list_warnings(cell(**fields, **sizes))
    assert warning == (
        f"{2 * len(group)} threads of 2 ranks on the {len(group)} CPUs of a socket: oversubscribed"
    )
    one_thread = {**fields, "threads": 1}
    assert list_warnings(cell(**one_thread)) == []


def test_more_threads_than_cores_are_a_warning(build, monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 1)
    assert build(Protocol.fixed(1)).warnings == ("2 threads on 1 cores: oversubscribed",)
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    assert build(Protocol.fixed(1)).warnings == ()


def test_pinning_and_too_many_threads_of_a_job_are_shown(cell, tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    site = tmp_path / "site.toml"
    site.write_text('title = "s"\nlauncher = "slurm"\ncores = 4\n[queues.large]\ncores = 8\n')
    of_job = cell(launcher="slurm", site=str(site), threads=8, affinity="cores")
    assert list_warnings(of_job) == ["8 threads on 4 cores: oversubscribed"]
    assert list_warnings(of_job, submission=Submission(partition="large")) == []
    described = outline.CellOutline(of_job, 1, 1, None).describe()
    assert " · pinned to cores · " in described and described.endswith("1 launch")


def test_jobs_on_gpus_without_a_gpu_are_a_warning(cell, tmp_path):
    site = tmp_path / "site.toml"
    site.write_text('title = "s"\nlauncher = "slurm"\ngpu_options = []\n')
    on_gpu = {"device": "cuda", "launcher": "slurm"}
    assert "ask for no GPU" in list_warnings(cell(**on_gpu, site=str(site)))[0]
    assert not list_warnings(cell(**on_gpu))
    assert not list_warnings(cell(device="cuda"))


@pytest.mark.parametrize(
    ("settings", "threads", "is_warned"),
    [
        ({}, {12, 6, 3}, True),
        ({"threads": [3]}, {3}, False),
        ({"nodes": [1, 2], "launcher": "mpi"}, {12, 6, 3}, False),  # 1 rank, and 2 ranks on 2 nodes
        ({"device": ["cuda"]}, {3}, False),
    ],
)
def test_ranks_with_other_threads_have_no_efficiency(
    tmp_path, monkeypatch, settings, threads, is_warned
):
    """On GPUs, a rank has its share of the cores whatever the number of ranks."""
    monkeypatch.setattr(machine, "usable_cores", lambda: 12)
    site = tmp_path / "site.toml"
    site.write_text('title = "s"\ncores = 12\ngpus = 4\n')
    ranks = {"ranks": [1, 2, 4], "scaling": "strong", "site": str(site)}
    plan = plan_builder.build_plan(
        {"framework": ["torch"], "workload": ["lenet"], **ranks, **settings}
    )
    assert {request.threads for request in plan.requests} == threads
    warnings = build_outline(plan, lambda _: None, []).warnings
    assert any("no efficiency" in text for text in warnings) == is_warned


def test_a_number_of_threads_that_follows_from_this_host_is_a_warning_for_jobs(cell, monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 4096)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    of_job = cell(launcher="slurm", threads=1)
    assert list_warnings(of_job) == []
    [warning] = list_warnings(of_job, has_guessed_threads=True)
    assert "1 thread may be wrong: they follow from the 4096 cores of this login node" in warning


def test_plans_say_whether_threads_follow_from_this_host():
    values = {"framework": ["reference"], "workload": ["lenet"]}
    for threads, is_guessed in ((None, True), ("powers", True), ([1], False)):
        plan = plan_builder.build_plan({**values, "threads": threads})
        assert plan.has_guessed_threads == is_guessed


def test_launches_that_take_longer_than_their_job_are_a_warning(run_inline, tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    site = tmp_path / "site.toml"
    site.write_text('title = "s"\nlauncher = "slurm"\ncores = 4\n[queues.short]\nmax_minutes = 1\n')
    # A launch trains for 5 s after 1 s of warm-up, and starting it takes about 5 s.
    words = f"run --framework reference --workload lenet --threads 1 --site {site} --dry-run"

    def warnings(options):
        outcome = run_inline(*words.split(), *options.split())
        assert outcome.returncode == 0, outcome.stderr
        return [line for line in outcome.stderr.splitlines() if "launches of the job" in line]

    assert warnings("--launches 11 --job-time 2m") == [
        "warning: the launches of the job take at least 3 min, but --job-time is 2 min: "
        "raise --job-time, or continue with --resume"
    ]
    assert warnings("--launches 10 --job-time 2m") == []
    [warning] = warnings("--launches 10 --job-time 2m --partition short")
    assert "but the partition allows 1 min: continue with --resume" in warning
    refused = run_inline(*words.split(), *"--job-time 2m --launcher local".split())
    assert (refused.returncode, refused.stdout) == (2, "")
