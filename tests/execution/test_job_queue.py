"""What a login node submits and waits for, as far as it needs no Slurm: see tests/cluster."""

import pytest

from xfbench.base.errors import UsageError
from xfbench.execution import job_queue
from xfbench.host import sites
from xfbench.launchers import slurm
from xfbench.model.plan import Plan
from xfbench.planning import experiment
from xfbench.planning.scheduling import launch_order
from xfbench.store.results_folder import Store


@pytest.fixture
def plan():
    def make(**settings):
        chosen = {"framework": ["torch"], "workload": ["lenet"], "launches": 2, **settings}
        cells = experiment.cells([experiment.matrix(**chosen)])
        return Plan(
            requests=tuple(launch_order(cells)),
            protocols=tuple(cells),
            pythons={},
            verify=True,
            strict=False,
            time_limit=60,
        )

    return make


@pytest.fixture
def site(tmp_path):
    file = tmp_path / "site.toml"
    file.write_text(
        'title = "s"\nlauncher = "slurm"\ncores = 8\nqueue = "day"\naccount = "A1"\n'
        "[queues.day]\nmax_nodes = 2\nmax_minutes = 30\n[queues.night]\n"
    )
    yield str(file)
    sites.load.cache_clear()


def jobs(plan, tmp_path, queue="", account=""):
    return [job for _, job in job_queue.prepare_jobs(plan, Store(tmp_path), 60, queue, account)]


def test_job_per_node_count_requests_its_largest_launch(plan, site, tmp_path):
    wanted = plan(site=site, ranks=[1, 2, 4], nodes=[1, 2], scaling="weak")
    one, two = jobs(wanted, tmp_path)
    # Of one node: a rank of 8 threads, 2 of 4, 4 of 2.
    assert (one.nodes, one.per_node, one.threads) == (1, 4, 2)
    assert (two.nodes, two.per_node, two.threads) == (2, 2, 4)
    assert (one.queue, one.account, one.minutes) == ("day", "A1", 30)
    [night] = jobs(plan(site=site), tmp_path, "night", "B2")
    assert (night.queue, night.account, night.minutes) == ("night", "B2", 60)


def test_threads_of_a_job_cover_the_largest_launch_rounded_up(plan, site, tmp_path):
    """Two ranks of three threads need six cores, which are shared by tasks for four ranks."""
    two = plan(site=site, ranks=[2], nodes=[1], scaling="weak", threads=[3])
    four = plan(site=site, ranks=[4], nodes=[1], scaling="weak", threads=[1])
    both = two.model_copy(
        update={
            "requests": two.requests + four.requests,
            "protocols": two.protocols + four.protocols,
        }
    )
    [job] = jobs(both, tmp_path)
    assert (job.per_node, job.threads) == (4, 2)


def test_same_plan_gives_the_same_job_name(plan, site, tmp_path):
    [first], [again] = (jobs(plan(site=site), tmp_path) for _ in range(2))
    assert first == again
    [other] = jobs(plan(site=site, seed=1), tmp_path)
    assert other.name != first.name


@pytest.mark.parametrize(
    ("settings", "queue", "words"),
    [
        ({}, "dya", "did you mean day"),
        ({"ranks": [4], "nodes": [4], "scaling": "weak"}, "day", "at most 2 nodes, not 4"),
    ],
)
def test_unsuitable_queue_is_refused_before_submission(
    plan, site, tmp_path, settings, queue, words
):
    with pytest.raises(UsageError, match=words):
        jobs(plan(site=site, **settings), tmp_path, queue)


@pytest.mark.parametrize(
    ("said", "memory"),
    [
        # As Slurm 22.05 puts it: jobacct_gather, and srun and slurmstepd with cgroups.
        (
            "x\nslurmstepd-node2: error: StepId=3.0 exceeded memory limit (9 > 7), being killed",
            True,
        ),
        ("srun: error: node1: task 0: Out Of Memory", True),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=3.0. Some of the step", True),
        ("srun: error: node1: task 0: Killed", False),
        ("RuntimeError: the paper's memory limit was reached", False),  # a rank's own words
    ],
)
def test_slurm_out_of_memory_messages_are_recognized(said, memory):
    assert slurm.reports_out_of_memory(said) == memory


def test_late_job_records_are_awaited_for_a_limited_time(plan, tmp_path):
    watch = job_queue._Watch(job_queue.Submitted(plan(), tmp_path, "1"))
    missing = plan().requests
    assert not watch.may_lag(missing)  # the job has not said that it is done
    (tmp_path / "job.status").write_text("0")
    assert not watch.may_lag([])
    assert [watch.may_lag(missing) for _ in range(job_queue._LAG + 1)] == [
        True
    ] * job_queue._LAG + [False]


@pytest.mark.parametrize("created", ["1970-01-01T00:00:00.000Z", "2999-01-01T00:00:00.000Z"])
def test_job_records_are_recognized_despite_a_wrong_clock(plan, record, tmp_path, created):
    """They are those that were not there when it was submitted."""
    store = Store(tmp_path / "results")
    store.prepare()
    asked, again = plan().requests

    def kept(request, **fields):
        made = record(fields={"request": request, **fields})
        store.add(made)
        return made

    earlier = kept(asked)
    [(_, job)] = job_queue.prepare_jobs(plan(), store, 60, "", "")
    known = job_queue._recorded_ids(plan(), store)
    assert known == [earlier.id]
    watch = job_queue._Watch(job_queue.Submitted(plan(), job.folder, "1", known))
    assert watch.fresh(store) == []
    late = kept(again, created=created)
    assert watch.fresh(store) == [late]
    assert watch.fresh(store) == []
