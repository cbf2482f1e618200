"""Tests of the batch search: its next batch, its limits and the records that it reuses."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xfbench.base.errors import UsageError
from xfbench.model.plan import Plan
from xfbench.model.request import Protocol
from xfbench.planning import experiment
from xfbench.planning.study_form import BatchSearch
from xfbench.studies import answer, batch_search
from xfbench.studies.batch_search import CellSearch, Trial

UNTIL = {"until": "out of memory"}


@pytest.fixture
def make_search(cell):
    """Return a function that makes a search that starts at a batch size of 4."""

    def make(settings=None, **cell_fields):
        rules = BatchSearch.model_validate({"from": 4, **UNTIL, **(settings or {})})
        return CellSearch(cell(**cell_fields), rules, Protocol.fixed(2))

    return make


def run_search(search, run_trial):
    """Return the trial of each batch, in search order; `run_trial` makes a trial from a batch."""
    trials = {}
    while (batch := batch_search.next_batch(search, trials)) is not None:
        assert batch not in trials and len(trials) < 100
        trials[batch] = run_trial(batch)
    return trials


@given(st.integers(4, 10**6), st.sampled_from([1 / 4, 1 / 16, 1 / 32]))
def test_search_finds_the_largest_batch_to_the_resolution(capacity, resolution):
    from xfbench.model.request import Cell

    cell = Cell(
        framework="reference", environment="own", workload="lenet", kernel="numpy", threads=1,
        global_batch_size=4, batch_size_per_rank=4, data="synthetic", steps=1,
    )  # fmt: skip
    rules = BatchSearch.model_validate({"from": 4, **UNTIL, "within": resolution})
    trials = run_search(
        CellSearch(cell, rules, Protocol.fixed(1)),
        lambda batch: Trial("ran" if batch <= capacity else "out"),
    )
    largest_run = max(batch for batch, trial in trials.items() if trial.outcome == "ran")
    smallest_out = min(batch for batch, trial in trials.items() if trial.outcome == "out")
    assert largest_run <= capacity < smallest_out
    assert smallest_out - largest_run <= max(1, resolution * largest_run)
    # Doubling and then bisection need no more trials.
    assert len(trials) <= capacity.bit_length() + math.log2(1 / resolution) + 1


def test_batches_stay_divisible_by_the_ranks(make_search):
    shared = make_search(ranks=3, strategy="mpi", scaling="strong", global_batch_size=6,
                  batch_size_per_rank=2)  # fmt: skip
    assert shared.cell_with_batch(12).batch_size_per_rank == 4
    trials = run_search(
        CellSearch(
            shared.cell,
            BatchSearch.model_validate({"from": 6, **UNTIL, "within": 0.01}),
            shared.protocol,
        ),
        lambda batch: Trial("ran" if batch <= 100 else "out"),
    )
    assert all(batch % 3 == 0 for batch in trials) and 99 in trials
    weak = make_search(ranks=2, strategy="mpi", scaling="weak", global_batch_size=8)
    assert (
        weak.cell_with_batch(16).batch_size_per_rank,
        weak.cell_with_batch(16).global_batch_size,
    ) == (16, 32)


def test_search_stops_at_the_limits_of_the_study_file(make_search):
    success = Trial("ran", seconds=1.0, images_per_second=100.0, peak_bytes=10)
    assert max(run_search(make_search({"most": 100}), lambda _: success)) == 64
    time_limited = make_search({"seconds": 9})
    assert max(run_search(time_limited, lambda batch: Trial("ran", seconds=batch))) == 16
    flat_search = make_search({"flat": 2}, memory_limit=1000)
    assert list(run_search(flat_search, lambda _: success)) == [4, 8, 16]
    # The flat rule does not apply near the memory limit or while throughput grows.
    near_limit_trials = run_search(
        flat_search, lambda batch: Trial("ran" if batch < 64 else "out", 1.0, 100.0, 500)
    )
    assert min(batch for batch, trial in near_limit_trials.items() if trial.outcome == "out") == 64
    growing_trials = run_search(
        make_search({"flat": 2, "most": 64}, memory_limit=10**9),
        lambda batch: Trial("ran", 1.0, 100.0 * batch, 10),
    )
    assert max(growing_trials) == 64


def test_search_stops_at_a_failed_first_batch_or_other_error(make_search):
    assert list(run_search(make_search(), lambda _: Trial("out"))) == [4]
    assert list(
        run_search(make_search(), lambda batch: Trial("ran" if batch < 8 else "otherwise"))
    ) == [
        4,
        8,
    ]


def test_earlier_trials_and_their_memory_limit_are_reused(make_search, record):
    search, limited_search = make_search(), make_search(memory_limit=10**8)
    out_of_memory = {"status": "failed", "reason": "out of memory: x", "measurement": None}
    trial_records = [
        record(memory_limit=10**8),
        record(
            memory_limit=10**8, global_batch_size=8, batch_size_per_rank=8, fields=out_of_memory
        ),
    ]
    other_records = [
        record(memory_limit=10**8, seed=3),
        record(memory_limit=10**8, global_batch_size=2, batch_size_per_rank=2),
        record(memory_limit=10**8, fields={"status": "crashed", "reason": "x"}),
    ]
    assert {
        selected.id
        for selected in batch_search.select_trial_records([search], trial_records + other_records)
    } == {trial_record.id for trial_record in trial_records}
    assert {
        selected.id
        for selected in batch_search.select_trial_records([limited_search], trial_records)
    } == {trial_record.id for trial_record in trial_records}
    assert batch_search.select_trial_records([make_search(memory_limit=2)], trial_records) == []
    # An earlier limit is reused if that memory is still available, so that its records count.
    [reused_search] = batch_search.add_earlier_or_available_memory_limit([search], trial_records)
    assert reused_search.cell.memory_limit == 10**8
    assert {
        batch: trial.outcome
        for batch, trial in batch_search.collect_trials(reused_search, trial_records).items()
    } == {
        4: "ran",
        8: "out",
    }
    [new_search] = batch_search.add_earlier_or_available_memory_limit([search], [])
    assert new_search.cell.memory_limit > 10**8 and new_search.cell.memory_limit % 2**28 == 0
    [gpu_search] = batch_search.add_earlier_or_available_memory_limit(
        [make_search(device="cuda")], []
    )
    assert gpu_search.cell.memory_limit is None


def test_unanswered_batches_are_not_requested_again(make_search):
    requested_batches = []

    def run_nothing(plan, done):
        requested_batches.append([request.global_batch_size for request in plan.requests])
        return []

    plan_settings = {"pythons": {}, "verify": False, "strict": False, "time_limit": 1.0}
    plan = Plan(requests=(), protocols=(), **plan_settings)
    searches = [make_search(memory_limit=1), make_search(memory_limit=1, threads=2)]
    assert (
        batch_search.run_batch_searches_and_measure(
            searches, plan, run_nothing, report_progress=lambda _: None
        )
        == []
    )
    assert requested_batches == [[4, 4]]


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"from": 4}, "until"),
        ({"from": 0, **UNTIL}, "from"),
        ({"from": 4, "until": "morning"}, "until"),
        ({"from": 4, **UNTIL, "wihin": 0.1}, "did you mean within"),
        ({"from": 4, **UNTIL, "most": 2}, r"most \(2\) must not be less than from \(4\)"),
        ([0], "batch_size"),
    ],
)
def test_invalid_batch_search_setting_is_reported(tmp_path, batch, words):
    inline = ", ".join(f"{k} = {v!r}" for k, v in batch.items()) if isinstance(batch, dict) else ""
    text = f"{{ {inline} }}" if inline else repr(batch)
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\ntitle = "t"\nquestion = "q?"\n[[matrix]]\nframework = ["reference"]\n'
        f'workload = ["lenet"]\nbatch_size = {text}\n'
    )
    with pytest.raises(UsageError, match=words) as error_info:
        experiment.load(str(tmp_path / "mine.toml"))
    assert "[rising]" not in str(error_info.value) and "[list]" not in str(error_info.value)


def make_batch_study(make_study, *analyses):
    matrix = {"batch_size": {"from": 4, **UNTIL}}
    study = make_study({"name": "values", "of": "peak_memory"}, matrix)
    return study.model_copy(
        update={"analysis": [type(study.analysis[0])(**analysis) for analysis in analyses]}
    )


def make_batch_launches(make_launches, size, *seconds, peak=0, out=False):
    sizes = {"global_batch_size": size, "batch_size_per_rank": size, "memory_limit": 10**9}
    if out:
        fields = {"status": "failed", "reason": "out of memory: x", "measurement": None}
        return make_launches(1.0, fields=fields, **sizes)
    records = make_launches(*seconds, **sizes)
    return [
        record.model_copy(
            update={"measurement": record.measurement.model_copy(update={"peak_rss_bytes": peak})}
        )
        for record in records
    ]


def test_memory_per_image_is_the_slope_over_the_batch(make_study, make_launches):
    study = make_batch_study(make_study, {"name": "memory_per_image"})
    peaks = {4: 1_000_400, 6: 1_000_600, 8: 1_000_800, 16: 1_001_600}
    records = [
        record
        for batch, peak in peaks.items()
        for record in make_batch_launches(make_launches, batch, 0.1, peak=peak)
    ]
    [finding] = answer.answer_study(study, "laptop", records, {}).findings
    per_image, fixed = finding.values
    assert per_image.interval.value == pytest.approx(100) and per_image.at == "each image"
    assert fixed.interval.value == pytest.approx(10**6)
    noisy_records = [
        record
        for batch in (4, 8, 16)
        for record in make_batch_launches(
            make_launches, batch, 0.1, peak=100 * batch + (batch == 8) * 50
        )
    ]
    [finding] = answer.answer_study(study, "laptop", noisy_records, {}).findings
    interval = finding.values[0].interval
    assert interval.low < 100 < interval.high and interval.launches == 3
    [finding] = answer.answer_study(study, "laptop", records[:2], {}).findings
    assert finding.values[0].reason == "needs three batches"


def test_stops_growing_finds_the_smallest_unbeaten_batch(make_study, make_launches):
    study = make_batch_study(make_study, {"name": "stops_growing"})
    step_times_s = {4: 0.4, 8: 0.4, 16: 0.8, 32: 1.6}  # 10, 20, 20, 20 images/s
    records = [
        record
        for batch, step_s in step_times_s.items()
        for record in make_batch_launches(
            make_launches, batch, *(step_s * factor for factor in (1.0, 1.001, 0.999, 1.0005))
        )
    ]
    # A batch that was only measured to find the memory limit is not compared.
    records += make_batch_launches(make_launches, 24, 0.1, 0.1)
    [finding] = answer.answer_study(study, "laptop", records, {}).findings
    [value] = finding.values
    assert (value.interval.low, value.interval.value, value.interval.high) == (8, 8, 8)
    assert finding.sentence == "Throughput stops growing at 8 images (lenet · reference)."
    noisy_records = [
        record
        for batch, step_s in step_times_s.items()
        for record in make_batch_launches(
            make_launches, batch, step_s, step_s * {4: 0.8, 8: 1.5, 16: 1.1, 32: 0.9}[batch]
        )
    ]
    [finding] = answer.answer_study(study, "laptop", noisy_records, {}).findings
    interval = finding.values[0].interval
    assert interval.value == 4 and interval.high == 32


def test_out_of_memory_claims_are_judged_by_both_bounds(make_study, make_launches):
    def make_claim(low, high):
        return {"source": "X", "text": "t", "low": low, "high": high}

    claims = [make_claim(8, 15), make_claim(16, 31), make_claim(10, 20), make_claim(1, 7)]
    study = make_batch_study(make_study, {"name": "out_of_memory", "claim": claims})
    records = [
        *make_batch_launches(make_launches, 4, 0.1),
        *make_batch_launches(make_launches, 8, 0.1),
    ]
    records += make_batch_launches(make_launches, 16, out=True)
    study_answer = answer.answer_study(study, "laptop", records, {})
    [finding] = study_answer.findings
    assert finding.values[0].interval.value == 8
    assert finding.sentence == (
        "The largest batch that fits is 8 "
        "(lenet · reference; 16 does not; limit 1 000 MB per rank)."
    )
    verdicts = [judged_claim.verdict for judged_claim in finding.judged]
    assert verdicts == ["holds", "does not hold", "cannot be told", "does not hold"]
    assert study_answer.missing == () and study_answer.discarded_launches == ()
    [finding] = answer.answer_study(study, "laptop", records[:2], {}).findings
    assert finding.values[0].reason == "not out of memory up to batch 8, the largest tried"
    assert finding.judged[3].verdict == "does not hold"
    [finding] = answer.answer_study(study, "laptop", records[2:], {}).findings
    assert "the smallest batch, 16: out of memory: x" in finding.values[0].reason


def test_search_continues_after_a_launch_at_the_time_limit(make_search):
    trials = run_search(make_search({"seconds": 16}), lambda batch: Trial("ran", seconds=batch))
    assert max(trials) == 32


def test_search_stops_at_gains_of_two_percent_or_less(make_search):
    """Throughput is flat if the last `flat` doublings together gain at most 2%."""
    for gain, largest_batch in ((1.019, 8), (1.03, 64)):
        trials = run_search(
            make_search({"flat": 1, "most": 64}, memory_limit=10**9),
            lambda batch, gain=gain: Trial("ran", 1.0, 100.0 * gain ** math.log2(batch), 10),
        )
        assert max(trials) == largest_batch


@pytest.mark.parametrize("max_batch", [4, 7, 8, 64, 127])
def test_search_needs_at_most_the_predicted_launches(make_search, max_batch):
    """A doubled batch needs two launches, and a batch between two doublings needs one."""
    max_launches = make_search({"most": max_batch}).max_launches()
    doubling_count = len(run_search(make_search({"most": max_batch}), lambda _: Trial("ran")))
    assert max_launches == 2 * doubling_count + 4 + 1
    capacity = max_batch - 1
    trials = run_search(
        make_search({"most": max_batch}), lambda batch: Trial("ran" if batch <= capacity else "out")
    )
    repeated_count = sum(make_search().rules.is_start_times_power_of_two(batch) for batch in trials)
    assert len(trials) + repeated_count <= max_launches


def test_latest_available_memory_limit_is_reused(make_search, record, monkeypatch):
    monkeypatch.setattr(batch_search.memory, "available_launch_bytes", lambda: 8 * 10**9)
    records = [record(memory_limit=limit) for limit in (10**9, 3 * 10**9, 9 * 10**9)]
    [search] = batch_search.add_earlier_or_available_memory_limit([make_search()], records)
    assert search.cell.memory_limit == 3 * 10**9


def test_ranks_on_a_node_share_its_available_memory(make_search, monkeypatch):
    monkeypatch.setattr(batch_search.memory, "available_launch_bytes", lambda: 8 * 10**9)
    ranks = {"ranks": 4, "nodes": 2, "strategy": "mpi", "scaling": "weak", "launcher": "mpi"}
    [shared] = batch_search.add_earlier_or_available_memory_limit(
        [make_search(global_batch_size=16, **ranks)], []
    )
    assert shared.cell.memory_limit == 4 * 10**9
