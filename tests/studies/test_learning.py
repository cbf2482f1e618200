"""Learning speed-up, by runs whose times to a loss are known."""

import pytest

from tests.equality.test_certificate import build_record_certificate
from xfbench.analysis import learning

SIZES = {"global_batch_size": 8, "batch_size_per_rank": 4}


def test_common_loss_is_the_best_loss_all_runs_reach(trained):
    runs = [trained([1.0, 0.5, 0.2]), trained([0.9, 0.4, 0.45])]
    assert learning.common_loss(runs) == 0.4
    assert learning.common_loss([*runs, trained([None, None])]) is None


def test_seconds_to_a_loss_count_whole_epochs(trained):
    run = trained([1.0, 0.5, 0.2], seconds=2.0)
    assert [learning.seconds_to_loss(run, loss) for loss in (1.0, 0.5, 0.3, 0.1)] == [2, 4, 6, None]


@pytest.fixture
def scaled(study, trained, found):
    """A function: the finding on runs of one and of two ranks, of three seeds each."""

    def of(one, two, seconds=(1.0, 0.5), **claim):
        torch = {"framework": "torch", "kernel": "onednn", "scaling": "weak"}
        asked = {"framework": ["torch"], "ranks": [1, 2], "scaling": "weak", "seed": [0, 1, 2]}
        asked |= {"epochs": len(one), "steps": None, "data": ["digits"]}
        made = study({"name": "learning_speedup", **claim}, matrix=asked)
        ways = ({}, {"ranks": 2, "strategy": "ddp", **SIZES})
        proofs = [build_record_certificate(trained(one, **torch, **way)) for way in ways]
        records = []
        for losses, way, took, proof in zip((one, two), ways, seconds, proofs, strict=True):
            for seed in range(3):
                own = trained(losses, took * (1 + 0.01 * seed), seed=seed, **torch, **way)
                records.append(own.model_copy(update={"certificate": proof.id}))
        return found(made, records, {proof.id: proof for proof in proofs})

    return of


def test_twice_the_ranks_and_epochs_give_no_learning_speedup(scaled):
    finding = scaled([1.0, 0.5, 0.4, 0.4], [2.0, 1.0, 0.7, 0.5])
    figures = {value.fields["speedup"]: value.interval.value for value in finding.values}
    assert figures == pytest.approx({"parallel": 2.0, "learning": 1.0}, rel=1e-6)
    assert "does 2" in finding.sentence and "learns 1" in finding.sentence


def test_equal_learning_per_epoch_gives_the_parallel_speedup(scaled):
    finding = scaled([1.0, 0.5, 0.4], [1.0, 0.5, 0.4])
    figures = {value.fields["speedup"]: value.interval.value for value in finding.values}
    assert figures == pytest.approx({"parallel": 2.0, "learning": 2.0}, rel=1e-6)
    [curve] = finding.curves
    assert {round(y, 6) for _, y, _, _ in curve.points} == {2.0}
    assert curve.points[0][0] == pytest.approx(0.4)


def test_diverged_runs_give_no_speedup(scaled):
    finding = scaled([1.0, 0.5], [None, None])
    assert "diverged" in " ".join(finding.notes)
    assert not any(value.interval for value in finding.values)


def test_claim_may_refer_to_a_single_speedup(scaled):
    claim = [
        {"source": "Y", "text": "t", "low": 1.5, "where": {"speedup": which}}
        for which in ("parallel", "learning")
    ]
    finding = scaled([1.0, 0.5, 0.4, 0.4], [2.0, 1.0, 0.7, 0.5], claim=claim)
    assert [one.verdict for one in finding.judged] == ["holds", "does not hold"]


def test_the_curve_spans_first_to_best_common_loss(scaled):
    [curve] = scaled([1.0, 0.5, 0.4], [0.9, 0.6, 0.4]).curves
    losses = [point[0] for point in curve.points]
    assert losses == sorted(losses)
    assert (losses[0], losses[-1]) == pytest.approx((0.4, 0.9))
