"""Job submission and waiting for records; tests with Slurm are in tests/cluster."""

import pytest

from xfbench import progress, session
from xfbench.base.errors import UsageError
from xfbench.execution import job, job_queue
from xfbench.host import sites
from xfbench.launchers import slurm
from xfbench.model.plan import Plan, Submission
from xfbench.model.record import Record
from xfbench.planning import experiment, plan_builder
from xfbench.planning.scheduling import launch_order
from xfbench.store.results_folder import Store
from xfbench.workloads import workloads


@pytest.fixture
def make_plan():
    def build_plan(**settings):
        chosen = {"framework": ["torch"], "workload": ["lenet"], "launches": 2, **settings}
        cells = experiment.expand_matrices([experiment.build_matrix(**chosen)])
        return Plan(
            requests=tuple(launch_order(cells)),
            protocols=tuple(cells),
            pythons={},
            verify=True,
            strict=False,
            time_limit=60,
        )

    return build_plan


@pytest.fixture
def site(tmp_path):
    file = tmp_path / "site.toml"
    file.write_text(
        'title = "s"\nlauncher = "slurm"\ncores = 8\nqueue = "day"\naccount = "A1"\n'
        "[queues.day]\nmax_nodes = 2\nmax_minutes = 30\n[queues.night]\n"
    )
    yield str(file)
    sites.load_site.cache_clear()


def build_jobs(plan, tmp_path, queue="", account=""):
    submission = Submission(partition=queue, account=account)
    submitted_plan = plan.model_copy(update={"submission": submission})
    jobs = job_queue.build_jobs_by_node_count(submitted_plan, Store(tmp_path))
    return [job for _, job in jobs]


def test_job_per_node_count_requests_its_largest_launch(make_plan, site, tmp_path):
    rank_plan = make_plan(site=site, ranks=[1, 2, 4], nodes=[1, 2], scaling="weak")
    one_node_job, two_node_job = build_jobs(rank_plan, tmp_path)
    # On one node: 1 rank of 8 threads, 2 ranks of 4, or 4 ranks of 2.
    assert (one_node_job.nodes, one_node_job.ranks_per_node, one_node_job.threads) == (1, 4, 2)
    assert (two_node_job.nodes, two_node_job.ranks_per_node, two_node_job.threads) == (2, 2, 4)
    assert (one_node_job.queue, one_node_job.account, one_node_job.minutes) == ("day", "A1", 30)
    [night] = build_jobs(make_plan(site=site), tmp_path, "night", "B2")
    assert (night.queue, night.account, night.minutes) == ("night", "B2", 60)


def test_threads_of_a_job_cover_the_largest_launch_rounded_up(make_plan, site, tmp_path):
    """Two ranks of three threads need six cores; four tasks share them."""
    two_rank_plan = make_plan(site=site, ranks=[2], nodes=[1], scaling="weak", threads=[3])
    four_rank_plan = make_plan(site=site, ranks=[4], nodes=[1], scaling="weak", threads=[1])
    combined_plan = two_rank_plan.model_copy(
        update={
            "requests": two_rank_plan.requests + four_rank_plan.requests,
            "protocols": two_rank_plan.protocols + four_rank_plan.protocols,
        }
    )
    [job] = build_jobs(combined_plan, tmp_path)
    assert (job.ranks_per_node, job.threads) == (4, 2)


def test_a_job_finds_the_site_file_of_its_plan_by_name(site, tmp_path, monkeypatch):
    """A job is another process, which knows of the file only what the plan says."""
    plan = plan_builder.build_plan({"framework": ["reference"], "launches": 1, "site": site})
    (tmp_path / "job.json").write_text(plan.model_dump_json())
    monkeypatch.setattr(sites, "_file_by_name", {})
    job_plan = Plan.read(tmp_path / "job.json").model_copy(update={"requests": ()})
    session.run(job_plan, Store(tmp_path / "results"))
    assert plan.requests[0].site == "site.toml"
    assert sites.load_site("site.toml").cores == 8


def test_same_plan_gives_the_same_job_name(make_plan, site, tmp_path):
    [first_job], [repeated_job] = (build_jobs(make_plan(site=site), tmp_path) for _ in range(2))
    assert first_job == repeated_job
    [other_job] = build_jobs(make_plan(site=site, seed=1), tmp_path)
    assert other_job.name != first_job.name


@pytest.mark.parametrize(
    ("settings", "queue", "words"),
    [
        ({}, "dya", "did you mean day"),
        ({"ranks": [4], "nodes": [4], "scaling": "weak"}, "day", "at most 2 nodes, not 4"),
    ],
)
def test_unsuitable_queue_is_refused_before_submission(
    make_plan, site, tmp_path, settings, queue, words
):
    with pytest.raises(UsageError, match=words):
        build_jobs(make_plan(site=site, **settings), tmp_path, queue)


@pytest.mark.parametrize(
    ("message", "memory"),
    [
        # Messages of Slurm 22.05: of jobacct_gather, and of srun and slurmstepd with cgroups.
        (
            "x\nslurmstepd-node2: error: StepId=3.0 exceeded memory limit (9 > 7), being killed",
            True,
        ),
        ("srun: error: node1: task 0: Out Of Memory", True),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=3.0. Some of the step", True),
        ("srun: error: node1: task 0: Killed", False),
        ("RuntimeError: the paper's memory limit was reached", False),  # a rank's own message
    ],
)
def test_slurm_out_of_memory_messages_are_recognized(message, memory):
    assert slurm.reports_out_of_memory(message) == memory


def test_late_job_records_are_awaited_for_a_limited_time(make_plan, tmp_path):
    watch = job_queue._Watch(job_queue.Submitted(make_plan(), tmp_path, "1"), print)
    missing = make_plan().requests
    assert not watch.count_poll_and_allow_another(missing)  # the job has not written its status
    (tmp_path / "job.status").write_text("0")
    assert not watch.count_poll_and_allow_another([])
    assert [watch.count_poll_and_allow_another(missing) for _ in range(job_queue._LAG + 1)] == [
        True
    ] * job_queue._LAG + [False]


@pytest.mark.parametrize("created", ["1970-01-01T00:00:00.000Z", "2099-12-31T00:00:00.000Z"])
def test_job_records_are_recognized_despite_a_wrong_clock(make_plan, record, tmp_path, created):
    """New records are those that did not exist when the job was submitted."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    first_request, second_request = make_plan().requests

    def store_record(request, **fields):
        new_record = record(fields={"request": request, **fields})
        store.add(new_record)
        return new_record

    earlier_record = store_record(first_request)
    [(_, job)] = job_queue.build_jobs_by_node_count(make_plan(), store)
    recorded_ids = job_queue._list_existing_record_ids(make_plan(), store)
    assert recorded_ids == [earlier_record.id]
    watch = job_queue._Watch(job_queue.Submitted(make_plan(), job.folder, "1", recorded_ids), print)
    assert watch.read_new_records(store) == []
    late_record = store_record(second_request, created=created)
    assert watch.read_new_records(store) == [late_record]
    assert watch.read_new_records(store) == []


def test_only_started_launches_of_a_dead_job_get_a_record(make_plan, tmp_path):
    """The events are those that the session in the job wrote; the last line may be cut."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    plan = make_plan(launches=4)
    events = progress.JsonLines(tmp_path / job_queue.EVENTS)
    for request in plan.requests[:2]:
        events.launch_started(request)
    with (tmp_path / job_queue.EVENTS).open("a") as file:
        file.write('{"event": "launch_st')
    watch = job_queue._Watch(job_queue.Submitted(plan, tmp_path, "1"), print)
    started = watch.read_started_digests()
    assert started == {request.digest for request in plan.requests[:2]}
    lost = job_queue._add_records_for_missing(plan, (), store, "crashed", "lost", started)
    assert [record.request for record in lost] == list(plan.requests[:2])
    assert plan.missing_requests(lost) == list(plan.requests[2:])


def test_a_job_that_died_before_its_first_launch_leaves_its_cause(make_plan, tmp_path):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    plan = make_plan(launches=4)
    [record] = job_queue._add_records_for_missing(plan, (), store, "failed", "no memory", set())
    assert (record.request, record.reason) == (plan.requests[0], "no memory")


def test_worker_leaves_the_cores_free_that_the_queue_of_the_job_reserves(cell, monkeypatch):
    request = cell(site="stampede2").request(1)
    monkeypatch.setenv("SLURM_JOB_PARTITION", "skx-normal")
    document = job.build_job_document("train", request, workloads()["lenet"])
    assert document["reserved_cores"] == 2


def test_a_job_has_the_options_of_its_site(make_plan, tmp_path):
    [job_on_cpus] = build_jobs(make_plan(site="generic-slurm"), tmp_path)
    assert "#SBATCH --exclusive" in slurm.job_script(job_on_cpus).splitlines()
    file = tmp_path / "gpu.toml"
    file.write_text('title = "g"\nlauncher = "slurm"\nscript_options = ["--gres=gpu:1"]\n')
    [job_on_gpu] = build_jobs(make_plan(site=str(file), device=["cuda"]), tmp_path)
    assert "#SBATCH --gres=gpu:1" in slurm.job_script(job_on_gpu).splitlines()
    assert "--gpus" not in slurm.job_script(job_on_gpu)


def test_a_job_inherits_the_variables_that_name_and_trust_folders(make_plan, tmp_path, monkeypatch):
    variables = {
        "XFBENCH_HOME": str(tmp_path),
        "XFBENCH_TRUSTED_GROUP": "lab",
        "XFBENCH_TRUSTED_FOLDERS": "/mnt/c",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    [job] = build_jobs(make_plan(site="generic-slurm"), tmp_path)
    assert variables.items() <= dict(job.variables).items()


@pytest.mark.parametrize(
    ("site", "options"),
    [
        ('extends = "generic-slurm"', ["--gpus-per-node=2"]),
        ('gpu_options = ["--gpus-per-task=1"]', ["--gpus-per-task=1"]),
        ('forbidden = ["--gpus-per-node"]', []),
        ("gpu_options = []", []),
    ],
)
def test_a_job_asks_slurm_for_the_gpus_of_its_ranks(make_plan, tmp_path, site, options):
    file = tmp_path / "gpus.toml"
    file.write_text(f'title = "g"\nlauncher = "slurm"\n{site}\n')
    ranks = {"ranks": [2], "scaling": "weak", "site": str(file)}
    for device, expected in (("cuda", options), ("cpu", [])):
        [job_of_device] = build_jobs(make_plan(device=[device], **ranks), tmp_path)
        lines = slurm.job_script(job_of_device).splitlines()
        assert [line for line in lines if "gpus" in line] == [f"#SBATCH {o}" for o in expected]


def test_a_dry_run_of_finished_launches_prints_no_job_script(make_plan, tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    nodes = {"ranks": [1, 2], "ranks_per_node": 1, "scaling": "strong"}
    plan = make_plan(**nodes, launcher="slurm", site="generic-slurm")
    plan = plan.model_copy(update={"resume": True})
    store = Store(tmp_path)
    store.create_and_check_folders()
    assert len(session.preview(plan, store).scripts) == 2
    for request in plan.requests:
        if request.ranks == 1:
            store.add(
                Record.make(status="invalid", reason="swapped", request=request, workload=None)
            )
    [script] = session.preview(plan, store).scripts
    assert "--nodes=2" in script
