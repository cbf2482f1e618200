"""Learning speed-up of verified rows in the report, drawn next to throughput speed-up."""

import pytest

from tests.sample_records import certify_records, vary_record
from xfbench.analysis.leaderboard import build_tables
from xfbench.model.record import Epoch
from xfbench.rendering.report import learned

# LeNet's target is a test loss of 0.2. Between 0.4 and 0.1, it is reached half way.
LOSSES = {1: (0.8, 0.4, 0.2, 0.1), 2: (1.6, 0.8, 0.4, 0.2), 4: (1.6, 0.8, 0.4, 0.1)}


@pytest.fixture
def make_launches(measured):
    """A function that makes launches of three seeds; `n` ranks need 1/n of the time of an epoch.

    Each number of ranks has its own losses.
    """

    def make(ranks=(1, 2, 4), losses=LOSSES):
        records = []
        for count in ranks:
            request_fields = {
                "ranks": count,
                "strategy": "mpi" if count > 1 else "none",
                "scaling": "weak",
            }
            request_fields |= {"batch_size_per_rank": 8, "global_batch_size": 8 * count}
            for seed in (1, 2, 3):
                seconds = (1 + seed / 100) / count
                epochs = tuple(
                    Epoch(
                        epoch=n, seconds=seconds, train_loss=loss, test_loss=loss, test_accuracy=0.9
                    )
                    for n, loss in enumerate(losses[count], 1)
                )
                records.append(
                    vary_record(
                        measured[0],
                        request={**request_fields, "launch": seed, "seed": seed},
                        seconds=0.1 * (1 + seed / 1000),
                        learning=epochs,
                    )
                )
        return records

    return make


def build_figures(records, certificates):
    [table] = build_tables(records, certificates)
    return learned.build_learning_speed_up_figures(table, {record.id: record for record in records})


def test_learning_speedup_is_drawn_beside_throughput_speedup(make_launches):
    """One rank needs 3 epochs, two ranks 4 of half the time, four 3.5 of a quarter."""
    [figure] = build_figures(*certify_records(make_launches()))
    lines = {line.name.rpartition(" ")[2]: line.points for line in figure.lines}
    assert set(lines) == {"learning", "images", "ideal"}
    assert [point.x for point in lines["learning"]] == [1, 2, 4]
    assert [point.y for point in lines["learning"]] == pytest.approx([1, 3 / 2, 3 / (3.5 / 4)])
    assert [point.y for point in lines["images"]] == pytest.approx([1, 2, 4])
    assert all(point.low <= point.y <= point.high for point in lines["learning"][1:])
    assert [row[-1] for row in figure.data] == ["3 of 3 runs, 3 of 3 runs"] * 2
    assert "time to a test loss of 0.2" in figure.description


def test_share_of_runs_that_reached_the_target_is_shown(make_launches):
    records = make_launches(ranks=(1, 2))
    reached = make_launches(ranks=(4,))[:2]
    missed = make_launches(ranks=(4,), losses={4: (1.6, 0.8, 0.4, 0.3)})[2:]
    [figure] = build_figures(*certify_records([*records, *reached, *missed]))
    assert [row[-1] for row in figure.data] == [
        "3 of 3 runs, 3 of 3 runs",
        "3 of 3 runs, 2 of 3 runs",
    ]
    lines = {line.name.rpartition(" ")[2]: line.points for line in figure.lines}
    assert lines["learning"][-1].x == 4 and lines["learning"][-1].low is None
    few = make_launches(ranks=(1, 2), losses={**LOSSES, 2: (1.6, 0.8, 0.4, 0.3)})
    assert build_figures(*certify_records(few)) == []


def test_learning_speedup_needs_a_baseline_and_more_ranks(make_launches):
    assert build_figures(*certify_records(make_launches(ranks=(1,)))) == []
    assert build_figures(*certify_records(make_launches(ranks=(2, 4)))) == []


def test_unverified_or_diverged_rows_are_omitted(make_launches):
    records = make_launches()
    assert build_figures(records, {}) == []
    certified, certificates = certify_records(
        [record for record in records if record.request.ranks < 4]
    )
    mixed = [*certified, *(record for record in records if record.request.ranks == 4)]
    [figure] = build_figures(mixed, certificates)
    assert {row[1] for row in figure.data} == {"2"}
    diverged = make_launches(losses={**LOSSES, 2: (None,) * 4, 4: (None,) * 4})
    assert build_figures(*certify_records(diverged)) == []
