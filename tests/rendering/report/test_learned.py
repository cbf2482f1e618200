"""Learning speed-up of verified rows in the report, drawn next to throughput speed-up."""

import pytest

from tests.sample_records import certify_records, vary_record
from xfbench.analysis.leaderboard import build_tables
from xfbench.model.record import Epoch
from xfbench.rendering.report import learned

LOSSES = {1: (1.0, 0.5, 0.3, 0.2), 2: (1.2, 0.8, 0.5, 0.3), 4: (1.5, 1.1, 0.8, 0.6)}


@pytest.fixture
def make_launches(measured):
    """A function that makes launches of three seeds; `n` ranks need 1/n of the time of an epoch.

    Each number of ranks has its own losses. The lowest loss that all of them reach is 0.6.
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
    """One rank needs 2 epochs to reach 0.6, two ranks 3 of half the time, four 4 of a quarter."""
    [figure] = build_figures(*certify_records(make_launches()))
    lines = {line.name.rpartition(" ")[2]: line.points for line in figure.lines}
    assert set(lines) == {"learning", "images", "ideal"}
    assert [point.x for point in lines["learning"]] == [1, 2, 4]
    assert [point.y for point in lines["learning"]] == pytest.approx([1, 2 / 1.5, 2])
    assert [point.y for point in lines["images"]] == pytest.approx([1, 2, 4])
    assert all(point.low <= point.y <= point.high for point in lines["learning"][1:])
    assert [row[-1] for row in figure.data] == ["0.6", "0.6"]
    assert "time to the best test loss" in figure.description


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
