"""Tests of the learning speed-up on runs whose times to a loss are known."""

import pytest

from tests.sample_records import build_record_certificate
from xfbench.analysis import learning

SIZES = {"global_batch_size": 8, "batch_size_per_rank": 4}


def test_common_loss_is_the_best_loss_all_runs_reach(make_training):
    runs = [make_training([1.0, 0.5, 0.2]), make_training([0.9, 0.4, 0.45])]
    assert learning.best_common_test_loss(runs) == 0.4
    assert learning.best_common_test_loss([*runs, make_training([None, None])]) is None


def test_seconds_to_a_loss_count_whole_epochs(make_training):
    run = make_training([1.0, 0.5, 0.2], seconds=2.0)
    assert [learning.seconds_to_test_loss(run, loss) for loss in (1.0, 0.5, 0.3, 0.1)] == [
        2,
        4,
        6,
        None,
    ]


@pytest.fixture
def make_scaling_finding(make_study, make_training, make_finding):
    """Return a function that compares runs on one and two ranks, with three seeds each."""

    def make(one_rank_losses, two_rank_losses, epoch_times_s=(1.0, 0.5), **claim):
        torch_fields = {"framework": "torch", "kernel": "onednn", "scaling": "weak"}
        matrix = {"framework": ["torch"], "ranks": [1, 2], "scaling": "weak", "seed": [0, 1, 2]}
        matrix |= {"epochs": len(one_rank_losses), "steps": None, "data": ["digits"]}
        study = make_study({"name": "learning_speedup", **claim}, matrix=matrix)
        rank_fields = ({}, {"ranks": 2, "strategy": "ddp", **SIZES})
        certificates = [
            build_record_certificate(
                make_training(one_rank_losses, **torch_fields, **request_fields)
            )
            for request_fields in rank_fields
        ]
        records = []
        for losses, request_fields, epoch_s, certificate in zip(
            (one_rank_losses, two_rank_losses),
            rank_fields,
            epoch_times_s,
            certificates,
            strict=True,
        ):
            for seed in range(3):
                record = make_training(
                    losses, epoch_s * (1 + 0.01 * seed), seed=seed, **torch_fields, **request_fields
                )
                records.append(record.model_copy(update={"certificate": certificate.id}))
        return make_finding(
            study, records, {certificate.id: certificate for certificate in certificates}
        )

    return make


def test_twice_the_ranks_and_epochs_give_no_learning_speedup(make_scaling_finding):
    finding = make_scaling_finding([1.0, 0.5, 0.4, 0.4], [2.0, 1.0, 0.7, 0.5])
    figures = {value.fields["speedup"]: value.interval.value for value in finding.values}
    assert figures == pytest.approx({"parallel": 2.0, "learning": 1.0}, rel=1e-6)
    assert "trains 2" in finding.sentence and "learns 1" in finding.sentence


def test_equal_learning_per_epoch_gives_the_parallel_speedup(make_scaling_finding):
    finding = make_scaling_finding([1.0, 0.5, 0.4], [1.0, 0.5, 0.4])
    figures = {value.fields["speedup"]: value.interval.value for value in finding.values}
    assert figures == pytest.approx({"parallel": 2.0, "learning": 2.0}, rel=1e-6)
    [curve] = finding.curves
    assert {round(y, 6) for _, y, _, _ in curve.points} == {2.0}
    assert curve.points[0][0] == pytest.approx(0.4)


def test_diverged_runs_give_no_speedup(make_scaling_finding):
    finding = make_scaling_finding([1.0, 0.5], [None, None])
    assert "diverged" in " ".join(finding.notes)
    assert not any(value.interval for value in finding.values)


def test_claim_may_refer_to_a_single_speedup(make_scaling_finding):
    claim = [
        {"source": "Y", "text": "t", "low": 1.5, "where": {"speedup": speedup}}
        for speedup in ("parallel", "learning")
    ]
    finding = make_scaling_finding([1.0, 0.5, 0.4, 0.4], [2.0, 1.0, 0.7, 0.5], claim=claim)
    assert [judged_claim.verdict for judged_claim in finding.judged] == ["holds", "does not hold"]


def test_curve_spans_first_to_best_common_loss(make_scaling_finding):
    [curve] = make_scaling_finding([1.0, 0.5, 0.4], [0.9, 0.6, 0.4]).curves
    losses = [point[0] for point in curve.points]
    assert losses == sorted(losses)
    assert (losses[0], losses[-1]) == pytest.approx((0.4, 0.9))
