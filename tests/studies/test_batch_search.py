"""Which batch is tried next, when it is enough, and which records count as tried."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xfbench import experiment
from xfbench.base.errors import UsageError
from xfbench.plan import Plan
from xfbench.request import Protocol
from xfbench.studies import answer, batch_search
from xfbench.studies.batch_search import CellSearch, Trial
from xfbench.studies.form import BatchSearch

UNTIL = {"until": "out of memory"}


@pytest.fixture
def line(cell):
    """A function that makes a line from 4 on; `more` are the cell's fields."""

    def make(settings=None, **more):
        rises = BatchSearch.model_validate({"from": 4, **UNTIL, **(settings or {})})
        return CellSearch(cell(**more), rises, Protocol.fixed(2))

    return make


def sought(line, trial):
    """Every batch that is tried, in order, where `trial` says how each goes."""
    known = {}
    while (batch := batch_search.next_batch(line, known)) is not None:
        assert batch not in known and len(known) < 100
        known[batch] = trial(batch)
    return known


@given(st.integers(4, 10**6), st.sampled_from([1 / 4, 1 / 16, 1 / 32]))
def test_search_finds_the_largest_batch_to_the_resolution(capacity, within):
    from xfbench.request import Cell

    one = Cell(
        framework="reference", environment="own", workload="lenet", kernel="numpy", threads=1,
        global_batch_size=4, batch_size_per_rank=4, data="synthetic", steps=1,
    )  # fmt: skip
    rises = BatchSearch.model_validate({"from": 4, **UNTIL, "within": within})
    known = sought(
        CellSearch(one, rises, Protocol.fixed(1)),
        lambda batch: Trial("ran" if batch <= capacity else "out"),
    )
    ran = max(batch for batch, one in known.items() if one.outcome == "ran")
    out = min(batch for batch, one in known.items() if one.outcome == "out")
    assert ran <= capacity < out
    assert out - ran <= max(1, within * ran)
    # As many as doubling and halving take, no more.
    assert len(known) <= capacity.bit_length() + math.log2(1 / within) + 1


def test_batches_stay_divisible_by_the_ranks(line):
    shared = line(ranks=3, strategy="mpi", scaling="strong", global_batch_size=6,
                  batch_size_per_rank=2)  # fmt: skip
    assert shared.cell_with_batch(12).batch_size_per_rank == 4
    known = sought(
        CellSearch(
            shared.cell,
            BatchSearch.model_validate({"from": 6, **UNTIL, "within": 0.01}),
            shared.protocol,
        ),
        lambda batch: Trial("ran" if batch <= 100 else "out"),
    )
    assert all(batch % 3 == 0 for batch in known) and 99 in known
    weak = line(ranks=2, strategy="mpi", scaling="weak", global_batch_size=8)
    assert (
        weak.cell_with_batch(16).batch_size_per_rank,
        weak.cell_with_batch(16).global_batch_size,
    ) == (16, 32)


def test_search_stops_at_the_limits_of_the_study_file(line):
    ran = Trial("ran", seconds=1.0, images_per_second=100.0, peak_bytes=10)
    assert max(sought(line({"most": 100}), lambda _: ran)) == 64
    slow = line({"seconds": 9})
    assert max(sought(slow, lambda batch: Trial("ran", seconds=batch))) == 16
    flat = line({"flat": 2}, memory_limit=1000)
    assert list(sought(flat, lambda _: ran)) == [4, 8, 16]
    # Not while memory is near, nor while it grows.
    near = sought(flat, lambda n: Trial("ran" if n < 64 else "out", 1.0, 100.0, 500))
    assert min(batch for batch, one in near.items() if one.outcome == "out") == 64
    grows = sought(line({"flat": 2, "most": 64}, memory_limit=10**9),
                   lambda n: Trial("ran", 1.0, 100.0 * n, 10))  # fmt: skip
    assert max(grows) == 64


def test_search_stops_at_a_failed_first_batch_or_other_error(line):
    assert list(sought(line(), lambda _: Trial("out"))) == [4]
    assert list(sought(line(), lambda n: Trial("ran" if n < 8 else "otherwise"))) == [4, 8]


def test_earlier_trials_and_their_memory_limit_are_reused(line, record):
    mine, limited = line(), line(memory_limit=10**8)
    gone = {"status": "failed", "reason": "out of memory: x", "measurement": None}
    known = [
        record(memory_limit=10**8),
        record(memory_limit=10**8, global_batch_size=8, batch_size_per_rank=8, fields=gone),
    ]
    others = [
        record(memory_limit=10**8, seed=3),
        record(memory_limit=10**8, global_batch_size=2, batch_size_per_rank=2),
        record(memory_limit=10**8, fields={"status": "crashed", "reason": "x"}),
    ]
    assert {one.id for one in batch_search.select_trial_records([mine], known + others)} == {
        r.id for r in known
    }
    assert {one.id for one in batch_search.select_trial_records([limited], known)} == {
        r.id for r in known
    }
    assert batch_search.select_trial_records([line(memory_limit=2)], known) == []
    # A limit that was, and that is available still, is kept: else nothing of it would count.
    [again] = batch_search.add_memory_limits([mine], known)
    assert again.cell.memory_limit == 10**8
    assert {n: one.outcome for n, one in batch_search.collect_trials(again, known).items()} == {
        4: "ran",
        8: "out",
    }
    [fresh] = batch_search.add_memory_limits([mine], [])
    assert fresh.cell.memory_limit > 10**8 and fresh.cell.memory_limit % 2**28 == 0
    [device] = batch_search.add_memory_limits([line(device="cuda")], [])
    assert device.cell.memory_limit is None


def test_unanswered_batches_are_not_requested_again(line):
    asked = []

    def nobody(plan, done):
        asked.append([request.global_batch_size for request in plan.requests])
        return []

    empty = {"pythons": {}, "verify": False, "strict": False, "time_limit": 1.0}
    plan = Plan(requests=(), protocols=(), **empty)
    lines = [line(memory_limit=1), line(memory_limit=1, threads=2)]
    assert batch_search.run_searches(lines, plan, nobody, report=lambda _: None) == []
    assert asked == [[4, 4]]


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
    with pytest.raises(UsageError, match=words) as told:
        experiment.load(str(tmp_path / "mine.toml"))
    assert "[rising]" not in str(told.value) and "[list]" not in str(told.value)


def risen(study, *analyses):
    matrix = {"batch_size": {"from": 4, **UNTIL}}
    made = study({"name": "values", "of": "peak_memory"}, matrix)
    return made.model_copy(update={"analysis": [type(made.analysis[0])(**one) for one in analyses]})


def of_size(launched, size, *seconds, peak=0, out=False):
    sizes = {"global_batch_size": size, "batch_size_per_rank": size, "memory_limit": 10**9}
    if out:
        fields = {"status": "failed", "reason": "out of memory: x", "measurement": None}
        return launched(1.0, fields=fields, **sizes)
    made = launched(*seconds, **sizes)
    return [
        one.model_copy(
            update={"measurement": one.measurement.model_copy(update={"peak_rss_bytes": peak})}
        )
        for one in made
    ]


def test_memory_per_image_is_the_slope_over_the_batch(study, launched):
    made = risen(study, {"name": "memory_per_image"})
    peaks = {4: 1_000_400, 6: 1_000_600, 8: 1_000_800, 16: 1_001_600}
    records = [one for n, peak in peaks.items() for one in of_size(launched, n, 0.1, peak=peak)]
    [finding] = answer.answer_study(made, "laptop", records, {}).findings
    each, rest = finding.values
    assert each.interval.value == pytest.approx(100) and each.at == "each image"
    assert rest.interval.value == pytest.approx(10**6)
    off = [
        one for n in (4, 8, 16) for one in of_size(launched, n, 0.1, peak=100 * n + (n == 8) * 50)
    ]
    [finding] = answer.answer_study(made, "laptop", off, {}).findings
    i = finding.values[0].interval
    assert i.low < 100 < i.high and i.launches == 3
    [finding] = answer.answer_study(made, "laptop", records[:2], {}).findings
    assert finding.values[0].reason == "needs three batches"


def test_stops_growing_finds_the_smallest_unbeaten_batch(study, launched):
    made = risen(study, {"name": "stops_growing"})
    steps = {4: 0.4, 8: 0.4, 16: 0.8, 32: 1.6}  # 10, 20, 20, 20 images a second
    records = [
        one
        for n, s in steps.items()
        for one in of_size(launched, n, *(s * noise for noise in (1.0, 1.001, 0.999, 1.0005)))
    ]
    # One that only looked for the end of memory is not compared.
    records += of_size(launched, 24, 0.1, 0.1)
    [finding] = answer.answer_study(made, "laptop", records, {}).findings
    [value] = finding.values
    assert (value.interval.low, value.interval.value, value.interval.high) == (8, 8, 8)
    assert finding.sentence == "Throughput stops growing: lenet · reference at 8 images."
    noisy = [
        one
        for n, s in steps.items()
        for one in of_size(launched, n, s, s * {4: 0.8, 8: 1.5, 16: 1.1, 32: 0.9}[n])
    ]
    [finding] = answer.answer_study(made, "laptop", noisy, {}).findings
    interval = finding.values[0].interval
    assert interval.value == 4 and interval.high == 32


def test_out_of_memory_claims_are_judged_by_both_bounds(study, launched):
    def claim(low, high):
        return {"source": "X", "text": "t", "low": low, "high": high}

    claims = [claim(8, 15), claim(16, 31), claim(10, 20), claim(1, 7)]
    made = risen(study, {"name": "out_of_memory", "claim": claims})
    records = [*of_size(launched, 4, 0.1), *of_size(launched, 8, 0.1)]
    records += of_size(launched, 16, out=True)
    found = answer.answer_study(made, "laptop", records, {})
    [finding] = found.findings
    assert finding.values[0].interval.value == 8
    assert finding.sentence == (
        "lenet · reference: batch 8 fits, 16 does not; limit 1 000 MB per rank."
    )
    verdicts = [one.verdict for one in finding.judged]
    assert verdicts == ["holds", "does not hold", "cannot be told", "does not hold"]
    assert found.missing == () and found.discarded_launches == ()
    [finding] = answer.answer_study(made, "laptop", records[:2], {}).findings
    assert finding.values[0].reason == "not out of memory up to batch 8, the largest tried"
    assert finding.judged[3].verdict == "does not hold"
    [finding] = answer.answer_study(made, "laptop", records[2:], {}).findings
    assert "the smallest batch, 16: out of memory: x" in finding.values[0].reason


def test_a_launch_of_just_the_seconds_allowed_is_not_too_long(line):
    known = sought(line({"seconds": 16}), lambda batch: Trial("ran", seconds=batch))
    assert max(known) == 32


def test_a_gain_of_no_more_than_matters_is_none(line):
    """2 % in all doublings together is flat; 3 % is not."""
    for gain, last in ((1.019, 8), (1.03, 64)):
        rising_slowly = sought(
            line({"flat": 1, "most": 64}, memory_limit=10**9),
            lambda batch, gain=gain: Trial("ran", 1.0, 100.0 * gain ** math.log2(batch), 10),
        )
        assert max(rising_slowly) == last


@pytest.mark.parametrize("most", [4, 7, 8, 64, 127])
def test_no_more_trials_are_done_than_are_foreseen(line, most):
    """Two launches of each batch that doubles, one of each in between."""
    foreseen = line({"most": most}).max_launches()
    doubled = len(sought(line({"most": most}), lambda _: Trial("ran")))
    assert foreseen == 2 * doubled + 4 + 1
    capacity = most - 1
    known = sought(line({"most": most}), lambda batch: Trial("ran" if batch <= capacity else "out"))
    tried_again = sum(line().rules.is_doubling(batch) for batch in known)
    assert len(known) + tried_again <= foreseen


def test_of_earlier_limits_the_last_that_is_available_is_kept(line, record, monkeypatch):
    monkeypatch.setattr(batch_search.memory, "available_bytes", lambda: 8 * 10**9)
    known = [record(memory_limit=limit) for limit in (10**9, 3 * 10**9, 9 * 10**9)]
    [one] = batch_search.add_memory_limits([line()], known)
    assert one.cell.memory_limit == 3 * 10**9


def test_ranks_on_a_node_share_what_it_has_available(line, monkeypatch):
    monkeypatch.setattr(batch_search.memory, "available_bytes", lambda: 8 * 10**9)
    ranks = {"ranks": 4, "nodes": 2, "strategy": "mpi", "scaling": "weak", "launcher": "mpi"}
    [shared] = batch_search.add_memory_limits([line(global_batch_size=16, **ranks)], [])
    assert shared.cell.memory_limit == 4 * 10**9
