"""Tests of the learning speed-up on runs whose times to a loss are known."""

import pytest

from tests.sample_records import build_record_certificate

SIZES = {"global_batch_size": 8, "batch_size_per_rank": 4}


@pytest.fixture
def make_scaling_finding(make_study, make_training, make_finding):
    """Return a function that compares runs on one and two ranks, with three seeds each.

    `diverged_seeds`: the seeds whose runs on two ranks diverge.
    """

    def make(one_rank_losses, two_rank_losses, diverged_seeds=(), **analysis):
        torch_fields = {"framework": "torch", "kernel": "onednn", "scaling": "weak"}
        matrix = {"framework": ["torch"], "ranks": [1, 2], "scaling": "weak", "seed": [0, 1, 2]}
        matrix |= {"epochs": len(one_rank_losses), "steps": None, "data": ["digits"]}
        study = make_study({"name": "learning_speedup", **analysis}, matrix=matrix)
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
            (1.0, 0.5),
            certificates,
            strict=True,
        ):
            for seed in range(3):
                record = make_training(
                    losses, epoch_s * (1 + 0.01 * seed), seed=seed, **torch_fields, **request_fields
                )
                update = {"certificate": certificate.id}
                if seed in diverged_seeds and request_fields:
                    measurement = record.measurement.model_copy(update={"losses": (2.3, None)})
                    update |= {"status": "invalid", "reason": "NaN", "measurement": measurement}
                records.append(record.model_copy(update=update))
        return make_finding(
            study, records, {certificate.id: certificate for certificate in certificates}
        )

    return make


def test_twice_the_ranks_and_epochs_give_no_learning_speedup(make_scaling_finding):
    finding = make_scaling_finding([1.0, 0.5, 0.4, 0.4], [2.0, 1.0, 0.7, 0.5], target=0.5)
    figures = {value.fields["speedup"]: value.interval.value for value in finding.values}
    assert figures == pytest.approx({"parallel": 2.0, "learning": 1.0}, rel=1e-6)
    assert "parallel speed-up is 2" in finding.sentence
    assert "learning speed-up is 1" in finding.sentence


def test_equal_learning_per_epoch_gives_the_parallel_speedup(make_scaling_finding):
    finding = make_scaling_finding([1.0, 0.5, 0.4], [1.0, 0.5, 0.4], target=0.4)
    figures = {value.fields["speedup"]: value.interval.value for value in finding.values}
    assert figures == pytest.approx({"parallel": 2.0, "learning": 2.0}, rel=1e-6)
    [curve] = finding.curves
    assert {round(y, 6) for _, y, _, _ in curve.points} == {2.0}
    assert curve.points[0][0] == pytest.approx(0.4)


def test_target_may_depend_on_the_workload_and_has_a_default(make_scaling_finding):
    losses = [1.0, 0.5, 0.4]
    for target, phrase in (
        ({"lenet": 0.5}, "test loss 0.5"),
        ({"convnet": 0.5}, "test loss 0.2"),
        (None, "test loss 0.2"),
    ):
        [note] = make_scaling_finding(losses, losses, target=target).notes
        assert phrase in note


def test_missed_targets_give_no_speedup_but_a_share(make_scaling_finding):
    finding = make_scaling_finding([1.0, 0.5], [None, None], target=0.5)
    assert not any(value.interval for value in finding.values)
    assert {value.reason for value in finding.values} == {
        "only 0 of 3 runs of this cell reached the target, no more than half"
    }
    assert finding.sentence.startswith("No learning speed-up is known: only 0 of 3 runs")
    assert finding.has_content
    [note] = finding.notes
    assert "3 of 3 runs on 1 rank and 0 of 3 runs on 2 ranks" in note


def test_missed_target_of_one_run_leaves_a_speedup(make_scaling_finding):
    finding = make_scaling_finding([1.0, 0.5], [1.0, 0.5], target=0.5, diverged_seeds=(2,))
    [_, learned] = finding.values
    assert learned.interval.value == pytest.approx(2.02 / 1.01, rel=0.02)
    assert learned.interval.low is None
    assert "2 of 3 runs reached it" in learned.note
    assert "1 run diverged" in " ".join(finding.notes)


def test_claim_may_refer_to_a_single_speedup(make_scaling_finding):
    claim = [
        {"source": "Y", "text": "t", "low": 1.5, "where": {"speedup": speedup}}
        for speedup in ("parallel", "learning")
    ]
    finding = make_scaling_finding(
        [1.0, 0.5, 0.4, 0.4], [2.0, 1.0, 0.7, 0.5], claim=claim, target=0.5
    )
    assert [judged_claim.verdict for judged_claim in finding.judged] == ["holds", "does not hold"]


def test_curve_begins_at_the_target_and_ends_before_the_first_losses(make_scaling_finding):
    [curve] = make_scaling_finding([1.0, 0.5, 0.4], [0.9, 0.6, 0.4], target=0.4).curves
    losses = [point[0] for point in curve.points]
    assert losses == sorted(losses)
    assert losses[0] == pytest.approx(0.4) and 0.8 < losses[-1] < 0.9
