"""Strategy options: how they are chosen, checked and recorded; asynchronous strategies."""

import json

import pytest

from tests.sample_replies import build_reply
from xfbench import statistics
from xfbench.analysis import leaderboard
from xfbench.base.errors import UsageError
from xfbench.equality.verify import Verifier
from xfbench.execution import job, ranks
from xfbench.execution.rank_communication import min_bytes_of_all_ranks
from xfbench.model import adapter, capabilities, certificate
from xfbench.model.certificate import Subject
from xfbench.model.record import Measurement, Record
from xfbench.model.request import PreparedSet
from xfbench.model.strategy import ASYNCHRONOUS
from xfbench.planning import experiment
from xfbench.rendering import tables


def build_cells(**settings):
    defaults = {"framework": ["torch"], "workload": ["lenet"], "ranks": [2], "scaling": "weak"}
    return [
        cell
        for cell, _ in experiment.expand_matrices(
            [experiment.build_matrix(**{**defaults, **settings})]
        )
    ]


def build_mxnet_request(**settings):
    [cell] = build_cells(framework=["mxnet"], **settings)
    return cell.request(1)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({"bucket_size": "1MB"}, (("bucket_size", 1_000_000),)),
        ({"bucket_size": "512KiB"}, (("bucket_size", 2**19),)),
        ({"bucket_size": 4096}, (("bucket_size", 4096),)),
        ({"overlap": "off", "bucket_size": "10kB"}, (("bucket_size", 10_000), ("overlap", "off"))),
        # Default values are dropped, so the cell is the same.
        ({"overlap": "on", "backend": "gloo", "bucket_size": "auto"}, ()),
    ],
)
def test_strategy_options_are_part_of_the_cell(options, chosen):
    [cell] = build_cells(strategy_options=options)
    assert cell.strategy_options == chosen
    reread = type(cell).model_validate_json(cell.model_dump_json())
    assert reread == cell and hash(reread) == hash(cell)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bucketsize": "1MB"}, "unknown strategy option 'bucketsize': did you mean bucket_size"),
        ({"servers": "2"}, "choose from backend, bucket_size, overlap"),
        ({"overlap": "of"}, "unknown overlap 'of': did you mean off"),
        ({"bucket_size": "1XB"}, "bucket_size=1XB: give a size in bytes"),
        ({"bucket_size": "0"}, "bucket_size=0: give a size in bytes"),
    ],
)
def test_wrong_strategy_option_is_refused_with_a_hint(options, words):
    with pytest.raises(UsageError, match=words):
        build_cells(strategy_options=options)


@pytest.mark.parametrize("count", ["0", "two", "-1", "1.5"])
def test_server_count_must_be_a_positive_integer(count):
    with pytest.raises(UsageError, match="a whole number of one or more"):
        build_mxnet_request(strategy=["dist_async"], strategy_options={"servers": count})


def test_strategy_without_options_refuses_an_option():
    with pytest.raises(UsageError, match="have no options"):
        build_cells(framework=["caffe"], strategy_options={"servers": 2})


def test_single_rank_drops_options_and_two_ranks_check_them():
    all_cells = build_cells(
        framework=["torch", "mxnet"],
        ranks=[1, 2],
        strategy=["default"],
        strategy_options={"servers": "2"},
    )
    single_rank_cells = [cell for cell in all_cells if cell.ranks == 1]
    assert {cell.strategy_options for cell in single_rank_cells} == {()}
    refusals = {
        cell.framework: capabilities.refusal_reason(cell.request(1))
        for cell in all_cells
        if cell.ranks == 2
    }
    assert refusals["mxnet"] is None
    assert "ddp of PyTorch has no option servers: it has backend" in refusals["torch"]


@pytest.mark.parametrize(
    ("strategy", "words"),
    [("dist_async", "needs ranks that wait for each other"), ("dist_sync", None)],
)
def test_asynchronous_ranks_refuse_a_cold_page_cache(strategy, words):
    data_set = PreparedSet(
        digest="sha256:1",
        format="raw",
        channels=1,
        classes=10,
        shape=(1, 28, 28),
        train_images=100,
        medium="ext4 on virtio",
    )
    changes = {"data": "mine", "data_set": data_set, "page_cache": "cold", "epochs": 1}
    request = build_mxnet_request(strategy=[strategy], strategy_options={})
    reason = capabilities.refusal_reason(
        request.model_copy(update={**changes, "steps": None, "input": "ours"})
    )
    assert (words in reason) if words else reason is None


def test_nccl_backend_is_refused_on_a_cpu():
    [cell] = build_cells(strategy_options={"backend": "nccl"})
    assert capabilities.refusal_reason(cell.request(1)) == "NCCL supports only GPUs"


def test_worker_receives_every_strategy_option():
    from xfbench.workloads import workloads

    request = build_mxnet_request(strategy=["dist_async"], strategy_options={"servers": 3})
    document = job.build_job_document("train", request, workloads()["lenet"])
    assert document["strategy_options"] == {"servers": 3, "overlap": "on"}
    assert document["request"]["strategy_options"] == {"servers": 3}


def test_strategy_starts_the_chosen_number_of_servers():
    strategy = adapter.load("mxnet").find_or_build_strategy("dist_sync")
    roles = [
        helper.variables["DMLC_ROLE"]
        for helper in strategy.helper_processes({"servers": 3, "overlap": "on"})
    ]
    assert roles == ["scheduler", "server", "server", "server"]
    processes = (
        adapter.load("tensorflow")
        .find_or_build_strategy("parameter_server")
        .helper_processes({"servers": 2})
    )
    assert [helper.number for helper in processes] == [0, 1]


def test_label_shows_the_strategy_options():
    request = build_mxnet_request(strategy=["dist_async"], strategy_options={"servers": 2})
    assert "2 ranks dist_async servers=2" in request.label()


def test_old_record_without_options_reads_and_keeps_its_cell(record, cell):
    document = record().document()
    assert document["request"].pop("strategy_options") == {}
    del document["measurement"]["rank_step_seconds"]
    old = cell().request(1)
    assert "strategy_options" not in old.cell_digest_fields()
    reread = Record.model_validate({**document, "id": "sha256:" + "0" * 64})
    assert reread.request == old
    assert json.loads(reread.request.model_dump_json())["strategy_options"] == {}


def test_certificate_is_bound_to_its_strategy_options(record):
    def build_subject(options):
        request = record(framework="torch", strategy_options=options).request
        return Subject(
            **{name: "x" for name in Subject.model_fields if name not in ("strategy_options",)}
            | {"ranks": 2, "accelerators": (), "strategy_options": request.strategy_options}
        )

    keys = {
        build_subject(options).key for options in ((), (("overlap", "off"),), (("overlap", "no"),))
    }
    assert len(keys) == 3
    fields = build_subject(()).model_dump(mode="json")
    del fields["strategy_options"]
    assert build_subject(()).key == certificate.digests.of_json(fields)[7:39]


@pytest.mark.parametrize(
    ("framework", "strategy", "algorithm"),
    [
        ("mxnet", "dist_sync", "server"),
        ("mxnet", "dist_async", "server"),
        ("tensorflow", "parameter_server", "server"),
        ("tensorflow", "mirrored", "ring"),
        ("torch", "ddp", "ring"),
        ("caffe", "mpi", "halving"),
    ],
)
def test_strategy_declares_its_exchange_algorithm(framework, strategy, algorithm):
    assert adapter.load(framework).find_or_build_strategy(strategy).algorithm == algorithm


def test_server_traffic_counts_both_directions_of_every_rank():
    assert min_bytes_of_all_ranks(400, 2, server=True) == 1600


def build_asynchronous_record(record, **fields):
    """Return a record of two ranks: steps of 0.1 s, and of 0.4 s with 0.8 s once."""
    rank_step_seconds = ((0.1, 0.1, 0.1), (0.4, 0.8, 0.4))
    measurement = record().measurement.model_copy(update={"rank_step_seconds": rank_step_seconds})
    settings = {"ranks": 2, "strategy": "dist_async", "scaling": "weak"}
    return record(
        global_batch_size=8, batch_size_per_rank=4, fields={"measurement": measurement},
        **settings, **fields,
    )  # fmt: skip


def test_asynchronous_rates_of_ranks_add_up(record):
    assert statistics.launch_throughput(build_asynchronous_record(record)) == pytest.approx(
        4 / 0.1 + 4 / 0.4
    )


def test_asynchronous_step_time_follows_from_summed_rates():
    slow = build_reply(1, step_seconds=[4.0, 4.0])
    merged = ranks.merge_replies([build_reply(0), slow], asynchronous=True)["measurement"]
    # Two ranks with 1/1 + 1/4 steps/s take 1.6 s for a step of both; then 1/2 + 1/4.
    assert merged["step_seconds"] == pytest.approx([1.6, 8 / 3])
    assert merged["rank_step_seconds"] == [[1.0, 2.0], [4.0, 4.0]]
    assert merged["wall_seconds"] == 9.0 and merged["images"] == 16
    synchronous = ranks.merge_replies([build_reply(0), slow])["measurement"]
    assert synchronous["step_seconds"] == [2.5, 3.0] and not synchronous["rank_step_seconds"]


def test_asynchronous_evaluation_is_the_mean_over_ranks():
    def build_learning(loss, accuracy):
        epoch = {"epoch": 1, "seconds": 2.0, "train_loss": 1.0}
        return {"learning": [{**epoch, "test_loss": loss, "test_accuracy": accuracy}]}

    replies = [build_reply(0) | build_learning(1.0, 0.5), build_reply(1) | build_learning(2.0, 0.7)]
    [epoch] = ranks.merge_replies(replies, asynchronous=True)["learning"]
    assert epoch["test_loss"] == 1.5 and epoch["test_accuracy"] == pytest.approx(0.6)
    [epoch] = ranks.merge_replies(replies)["learning"]
    assert epoch["test_loss"] == 1.0


def test_change_of_one_ranks_level_marks_an_asynchronous_launch(record):
    steady, slowing = (0.1,) * 40, (0.1,) * 20 + (0.2,) * 20
    for rank_step_seconds, expected in (((steady, steady), False), ((steady, slowing), True)):
        launch = build_asynchronous_record(record)
        measurement = launch.measurement.model_copy(update={"rank_step_seconds": rank_step_seconds})
        changed_launch = launch.model_copy(update={"measurement": measurement})
        assert statistics.is_level_changed(changed_launch) is expected


def test_asynchronous_cell_is_shown_but_never_ranked(record):
    """A certificate does not help, though no such launch can have one."""
    launch = build_asynchronous_record(record, strategy_options={"servers": 2})
    [table] = leaderboard.build_tables([launch], {})
    [row] = table.unranked
    assert row.reason == ASYNCHRONOUS and row.asynchronous
    assert row.images_per_second.value == pytest.approx(50)
    certified = launch.model_copy(update={"certificate": "sha256:" + "1" * 64})
    assert leaderboard.unranked_reason(certified, {certified.certificate: None}) == ASYNCHRONOUS
    text = tables.to_text([table])
    assert "2 dist_async servers=2 (asynchronous)" in text and ASYNCHRONOUS in text
    assert "servers=2" in tables.to_csv([table])


def test_each_set_of_options_has_its_own_row_and_baseline(record):
    def launch(ranks, **options):
        size = {"global_batch_size": 4 * ranks, "batch_size_per_rank": 4}
        return record(
            ranks=ranks, strategy="dist_sync", scaling="weak", strategy_options=options, **size
        )

    records = [launch(2), launch(2, servers=2), launch(4, servers=2)]
    [table] = leaderboard.build_tables(records, {})
    rows = {(row.ranks, *row.strategy_options): row.efficiency for row in table.unranked}
    assert len(rows) == 3
    efficiency = rows[4, "servers"]
    assert efficiency.baseline_ranks == 2 and efficiency.value == pytest.approx(1)
    assert efficiency.baseline_images_per_second == pytest.approx(80)
    assert rows[2, "servers"].value == 1 and rows[2,] is None
    text = tables.to_text([table])
    assert "100% of 2 ranks at 80" in text and text.count("base") == 1


def test_asynchronous_strategy_is_not_verified(record):
    class Untouched(Verifier):
        def _run(self, *_):
            raise AssertionError("the test expects no training")

    request = build_mxnet_request(strategy=["dist_async"])
    verdict = Untouched().verify(request, None)
    assert (verdict.verdict, verdict.reason) == ("unsupported", ASYNCHRONOUS)


def test_old_measurement_has_no_rank_step_seconds(record):
    document = record().measurement.model_dump()
    del document["rank_step_seconds"]
    assert Measurement.model_validate(document).rank_step_seconds == ()
