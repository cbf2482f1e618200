"""Gradients of batches as large as the timed one, compared with the truth of a small case."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests import fake_framework
from tests.equality.proofs import Proof, summarise_violations
from xfbench.analysis import leaderboard
from xfbench.base import digests
from xfbench.environments import environment
from xfbench.equality import cases, certify, jobs, timed_batch
from xfbench.equality.jobs import CheckError
from xfbench.equality.verify import Verdict, Verifier
from xfbench.execution.launch import LaunchContext
from xfbench.model import adapter, certificate, privacy
from xfbench.model.certificate import batch_certified_fields, certified_fields
from xfbench.model.request import Request
from xfbench.rendering import tables
from xfbench.session import Session
from xfbench.store.results_folder import Store
from xfbench.workloads import workloads

REFERENCE = Proof.of("reference").request
IN_TEST_ALL = ("caffe", "ipex", "mxnet")


def reference_environment():
    return environment.ensure_environment(adapter.load("reference"))


def verify_reference(batch_sizes, run=jobs.run_cases, **options):
    return timed_batch.verify_batch_sizes(
        Verifier(run=run, **options), REFERENCE, reference_environment(), batch_sizes
    )


def test_batches_of_any_size_are_equal_to_the_truth_of_few_images():
    verdicts = verify_reference([1, 6, 64])
    assert {size: verdict.verdict for size, verdict in verdicts.items()} == dict.fromkeys(
        [1, 6, 64], "equal"
    )
    for verdict in verdicts.values():
        assert 0 < verdict.worst.excess < 1
        assert {check.kind for check in verdict.checks} == {
            "whole network, float32, own weights",
            "whole network, float32, scaled weights",
        }
        assert all(check.tolerance < 2**-13 for check in verdict.checks)


def change_gradients(factor, only_batch=None):
    """Return a function like `jobs.run_cases` that changes the gradients of one parameter."""

    def run(documents, *rest):
        results = jobs.run_cases(documents, *rest)
        for arrays in results.arrays.values():
            images = int(arrays.get("images", 0))
            if only_batch in (None, images) and "gradient/conv2/weight" in arrays:
                arrays["gradient/conv2/weight"] *= factor
        return results

    return run


def test_a_wrong_gradient_makes_only_its_batch_different():
    verdicts = verify_reference([32, 64], change_gradients(1.001, only_batch=64))
    assert verdicts[32].verdict == "equal"
    assert verdicts[64].verdict == "different"
    assert verdicts[64].worst.quantity == "gradient/conv2/weight"
    assert verdicts[64].place.layer == "conv2"


def test_a_worker_that_ignores_the_size_proves_nothing():
    """The worker of an earlier revision computes the few images of the case."""

    def run(documents, *rest):
        return jobs.run_cases([{**document, "copies": 1} for document in documents], *rest)

    verdict = verify_reference([64], run)[64]
    assert verdict.verdict == "unsupported"
    assert verdict.reason == "its worker did not compute a batch of 64 images"


def give_limits(monkeypatch, limit):
    """Take limits below `limit` as sharp, whatever the kind of parameter."""
    monkeypatch.setattr(timed_batch, "_SHARP", {"float32": limit})
    monkeypatch.setattr(timed_batch, "_SHARP_GAMMA", limit)


def test_blocks_and_single_layers_are_compared_if_limits_are_too_large(monkeypatch):
    """No limit is below 0, so each step adds what the one before could not decide."""
    give_limits(monkeypatch, 0.0)
    verifier = Verifier()
    batches = timed_batch._Batches(
        verifier, REFERENCE, reference_environment(), workloads()["lenet"], 4, 0
    )
    names = [expected.case.name for expected in batches._choose_cases(8)]
    assert [name for name in names if name.startswith("layer/")] == [
        f"layer/{name}/scaled" for name in ("conv1", "pool1", "conv2", "pool2", "ip1", "ip2")
    ]
    assert {"whole/own", "whole/scaled", "block0/scaled"} < {*names}


def test_a_batch_whose_rounding_hides_errors_is_not_proven(monkeypatch):
    give_limits(monkeypatch, 0.0)
    verdict = verify_reference([8])[8]
    assert verdict.verdict == "unsupported"
    assert verdict.reason == ("rounding of this batch may hide an error of conv1, conv2, ip1, ip2")


def test_a_switch_that_rounding_explains_is_forgiven_only_if_all_layers_are_right():
    """One weight gradient is off by 10 % in the whole network, as if rounding switched a ReLU."""
    ran = []

    def run(documents, *rest):
        results = jobs.run_cases(documents, *rest)
        ran.append([document["name"] for document in documents])
        for name, arrays in results.arrays.items():
            if name.startswith("whole/own"):
                arrays["gradient/conv1/weight"] *= 1.1
        return results

    verdict = verify_reference([64], run)[64]
    assert [name.partition("/")[0] for name in ran[1]] == ["layer"] * len(ran[1])
    assert len(ran[1]) == 8
    assert (verdict.verdict, verdict.place) == ("different", None)


def test_all_cases_can_run_in_one_process():
    """On another machine, no more cases can be run later."""
    ran = []

    def run(documents, *rest):
        ran.append(documents)
        return change_gradients(1.001)(documents, *rest)

    verdict = verify_reference([64], run, all_at_once=True)[64]
    assert (verdict.verdict, verdict.place.layer, len(ran)) == ("different", "conv2", 1)


def test_layers_that_cannot_run_alone_are_no_proof():
    def run(documents, *rest):
        if documents[0]["name"].startswith("layer/"):
            raise CheckError("out of memory")
        return change_gradients(1.001)(documents, *rest)

    verdict = verify_reference([64], run)[64]
    assert (verdict.verdict, verdict.reason) == (
        "unsupported",
        "outside its limits, and its layers cannot run alone: out of memory",
    )


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_a_missing_gradient_is_found_in_each_precision(precision):
    """The whole network's rounding would hide a gradient of zero: layers alone show it."""
    request = REFERENCE.model_copy(update={"precision": precision})
    found = reference_environment()
    for factor, expected in ((1, "equal"), (0, "different")):
        run = change_gradients(factor)
        verdict = timed_batch.verify_batch_sizes(Verifier(run=run), request, found, [64])[64]
        assert verdict.verdict == expected
        assert expected != "different" or verdict.place.layer == "conv2"


SIZE_AS_EVIDENCE = """
class Trainer(FakeTrainer):
    def load(self, images, labels):
        self.images = len(images)
        return images

    def parameters(self):
        return {}

    def runtime_info(self):
        kernel = "plain" if self.images < 99 else "other"
        return {
            **super().runtime_info(), "kernel": kernel, "kernel_evidence": [f"{self.images} images"]
        }
"""
WITHOUT_KERNELS = """
from xfbench.worker import check
run_cases = check.run_cases
check.run_cases = lambda *job: {k: v for k, v in run_cases(*job).items() if k != "kernels"}
"""


@pytest.fixture
def run_sizes(fake_adapter, cell):
    """Return a function that runs two cases of each batch size in the fake framework."""

    def run(body, sizes):
        fake_adapter(body)
        described = adapter.load("odd")
        lenet = workloads()["lenet"]
        documents = [
            {**timed_batch._with_timed_batch(expected, size).case.document("float32"), "steps": []}
            for size in sizes
            for expected in Verifier().oracle.compute_expected(
                cases.own_and_scaled_whole_network_cases(lenet, 0, images=4)
            )
        ]
        request = cell(framework="odd", kernel="plain").request(1)
        found = environment.ensure_environment(described)
        return jobs.run_cases(documents, request, lenet, described, found)

    return run


def test_each_batch_size_has_its_own_kernel_evidence(run_sizes):
    results = run_sizes(SIZE_AS_EVIDENCE, [8, 64])
    assert results.evidence_by_images == {8: ("8 images",), 64: ("64 images",)}
    assert results.kernel_evidence == ("8 images",)
    with pytest.raises(CheckError, match="kernel other ran, not plain: 100 images"):
        run_sizes(SIZE_AS_EVIDENCE, [8, 100])


def test_workers_of_earlier_revisions_give_evidence_of_the_first_case(run_sizes):
    results = run_sizes(SIZE_AS_EVIDENCE + WITHOUT_KERNELS, [8, 64])
    assert (results.kernel_evidence, results.evidence_by_images) == (("8 images",), {})


@pytest.mark.parametrize(
    ("workload", "batch_size", "images"),
    [
        ("lenet", 64, 4),
        ("lenet", 6, 6),
        ("lenet", 25, 5),
        ("lenet", 97, 1),
        ("lenet", 256, 8),
        ("alexnet", 64, 2),
        ("alexnet", 256, 8),
        ("alexnet", 4096, 16),
    ],
)
def test_a_batch_repeats_several_images_if_its_size_allows_it(workload, batch_size, images):
    assert cases.count_images_to_repeat(workloads()[workload], batch_size) == images


def test_limits_of_a_sum_grow_with_the_square_root_of_its_terms():
    case = cases.own_and_scaled_whole_network_cases(workloads()["lenet"], 0)[0]
    [small, large] = (replace(case, timed_batch_size=size) for size in (32, 128))
    for name in ("conv1/weight", "conv1/bias", "ip2/weight"):
        assert large.limit_of_sum(name) == pytest.approx(2 * small.limit_of_sum(name))
    positions = 24 * 24
    assert large.limit_of_sum("conv1/weight") == pytest.approx(
        3 * 2.0**-23 * (128 * positions / 36) ** 0.5
    )
    assert case.limit_of_sum("conv1/weight") == 0


@pytest.fixture
def context(tmp_path):
    found = environment.ensure_environment(adapter.load("reference"))
    launch_context = LaunchContext(
        Store(tmp_path / "results"), environments={REFERENCE.environment_key: found}
    )
    launch_context.store.create_and_check_folders()
    return launch_context


@pytest.fixture
def empty_home(monkeypatch, tmp_path):
    """A cache without certificates, in which an equal LeNet is already certified."""
    monkeypatch.setattr(certify.paths, "cache", lambda: tmp_path / "cache")
    for request in requests_of(batch_sizes=(8,)):
        certify.store_verdict_unless_unsupported(
            Verdict(request, "equal"), reference_environment(), 0
        )


def requests_of(batch_sizes, threads=(1,)) -> list[Request]:
    changes = [
        {"global_batch_size": size, "batch_size_per_rank": size, "threads": count}
        for size in batch_sizes
        for count in threads
    ]
    return [REFERENCE.model_copy(update=change) for change in changes]


@pytest.fixture
def verify_calls(monkeypatch):
    """Batch sizes by call of `verify_batch_sizes`. 13 images fail, and 16 differ."""
    calls = []

    def verify_batch_sizes(verifier, request, found, batch_sizes, seed):
        calls.append((request.threads, *batch_sizes))
        if 13 in batch_sizes:
            raise CheckError("out of memory")
        return {
            size: Verdict(request, "different" if size == 16 else "equal", "wrong" * (size == 16))
            for size in batch_sizes
        }

    monkeypatch.setattr(certify.timed_batch, "verify_batch_sizes", verify_batch_sizes)
    return calls


@pytest.mark.usefixtures("empty_home")
def test_each_batch_and_thread_count_is_verified_once(context, verify_calls):
    requests = requests_of((8, 16), threads=(1, 2))
    said = []
    for _ in range(2):
        certify.certify_requests([*requests, *requests], context, print, said.append)
    assert verify_calls == [(1, 8, 16), (2, 8, 16)]
    ids = {context.batch_certificates[batch_certified_fields(each)] for each in requests}
    assert len(ids) == 4
    stored = certificate.read_certificates(context.store.folder)
    assert ids < {*stored}
    assert {(c.timed_batch.batch_size, c.verdict) for c in stored.values() if c.timed_batch} == {
        (8, "equal"),
        (16, "different"),
    }
    assert set(context.wrong_batches.values()) == {"at a batch of 16: at no single layer: wrong"}
    assert (
        said.count(f"{requests[2].label()}: different, at a batch of 16: at no single layer: wrong")
        == 2
    )


@pytest.mark.usefixtures("empty_home")
def test_one_batch_that_fails_costs_no_other(context, verify_calls):
    said = []
    requests = requests_of((8, 13))
    certify.certify_requests(requests, context, print, said.append)
    assert verify_calls == [(1, 8, 13), (1, 8), (1, 13)]
    label = requests[1].label()
    assert said == [f"{label}: not verified at a batch of 13: out of memory"]
    reasons = {batch_certified_fields(requests[1]): "out of memory"}
    assert context.unproven_batches == reasons
    assert {*context.batch_certificates} == {batch_certified_fields(requests[0])}
    assert certified_fields(requests[1]) in context.certificates


@pytest.mark.usefixtures("empty_home")
def test_the_reason_is_one_line_and_records_mask_its_names(context, monkeypatch):
    def verify_batch_sizes(*_):
        raise CheckError("cannot read its results:\nno /home/somebody/found.npz")

    monkeypatch.setattr(certify.timed_batch, "verify_batch_sizes", verify_batch_sizes)
    certify.certify_requests(requests_of((8,)), context, print, print)
    [reason] = context.unproven_batches.values()
    document = privacy.make_private({"batch_unproven_reason": reason})
    assert document == {"batch_unproven_reason": "cannot read its results: no …/found.npz"}


@pytest.mark.usefixtures("empty_home")
def test_a_certificate_of_an_earlier_rule_is_not_used(context, verify_calls):
    """The first batch certificates were files of other names that state no rule."""
    [request] = requests_of((8,))
    certify.certify_requests([request], context, print, print)
    first_id = context.batch_certificates[batch_certified_fields(request)]
    document = json.loads(context.store.certificate_path(first_id).read_bytes())
    document["timed_batch"].pop("rule", None)
    del document["id"]
    folder = certify.paths.cache() / "certificates"
    [path] = folder.glob("*-*.json")
    path.unlink()
    older_path = folder / f"{path.name.split('-')[0]}-8x1.json"
    older_path.write_text(json.dumps({"id": digests.of_json(document), **document}))
    assert certificate.read(older_path).timed_batch.batch_size == 8
    certify.certify_requests([request], context, print, print)
    assert verify_calls == [(1, 8), (1, 8)]


@pytest.mark.usefixtures("empty_home", "verify_calls")
def test_records_and_tables_say_why_a_batch_was_not_compared(context):
    fake_framework.write_peaks(certify.paths.cache())
    [request] = requests_of((13,))
    request = request.model_copy(update={"steps": 2, "warmup": 0, "min_seconds": None})
    session = Session(context)
    session.certify([request])
    [record] = session.launch([request])
    assert (record.status, record.batch_certificate) == ("ok", None)
    assert record.batch_unproven_reason == "out of memory"
    [table] = leaderboard.build_tables(
        [record], certificate.read_certificates(context.store.folder)
    )
    assert table.rows[0].batch_unproven_reason == "out of memory"
    lines = tables.to_text([table]).splitlines()
    assert "reference: batch not compared: out of memory" in lines


@pytest.mark.usefixtures("empty_home")
def test_ranks_share_the_certificate_of_one_rank(context, verify_calls):
    """`certify_requests` verifies the gradients of a rank's batch on one rank."""
    [single] = requests_of((8,))
    ranks = single.model_copy(update={"ranks": 2, "global_batch_size": 16, "strategy": "ddp"})
    certify.store_verdict_unless_unsupported(Verdict(ranks, "equal"), reference_environment(), 0)
    for request in (single, ranks):
        context.certificates[certified_fields(request)] = "sha256:" + "1" * 64
    [group] = certify.group_by_process([single, ranks])
    found = [*certify.certify_timed_batches(Verifier(), group, reference_environment(), print)]
    assert verify_calls == [(1, 8)]
    assert [request.ranks for request, _ in found] == [1, 2]
    assert len({certificate.id for _, certificate in found}) == 1


@pytest.mark.deep
@pytest.mark.parametrize(
    ("workload", "batch_size", "framework"),
    [
        *(("lenet", 256, name) for name in ("jax", "tensorflow", "torch")),
        *(pytest.param("lenet", 256, name, marks=pytest.mark.long) for name in IN_TEST_ALL),
        *(
            pytest.param("convnet", 100, name, marks=pytest.mark.long)
            for name in ("jax", "tensorflow", "torch", *IN_TEST_ALL)
        ),
    ],
)
def test_the_timed_batch_of_a_framework_is_equal(framework, workload, batch_size):
    proof = Proof.of(framework, workload)
    found = environment.ensure_environment(adapter.load(framework))
    verdict = timed_batch.verify_batch_sizes(Verifier(), proof.request, found, [batch_size])[
        batch_size
    ]
    assert (verdict.verdict, summarise_violations(verdict), verdict.reason) == ("equal", [], None)
    assert verdict.kernel_evidence


def test_images_are_repeated_in_random_order():
    from xfbench.worker.check import _repeat_images

    images, labels = np.arange(3)[:, None], np.arange(3)
    repeated, repeated_labels = _repeat_images(images, labels, 4, 0)
    assert sorted(repeated_labels) == [0] * 4 + [1] * 4 + [2] * 4
    assert list(repeated[:, 0]) == list(repeated_labels) != sorted(repeated_labels)
