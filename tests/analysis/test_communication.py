"""Communication figures, computed from ranks with known figures."""

import re

import pytest

from tests.sample_records import build_link_figures
from xfbench.analysis import communication, leaderboard
from xfbench.execution import rank_communication
from xfbench.model.record import Communication
from xfbench.model.request import PreparedSet
from xfbench.rendering import tables


def rank_figures(compute, sent=1000.0):
    links = [build_link_figures("network", "eth0", sent), build_link_figures("loopback", "lo", 1.0)]
    link_figures = {"links": links, "uncounted": {"pcie": "no rank used an NVIDIA device"}}
    return {"compute_seconds": compute, "payload_bytes": 400, **link_figures}


def test_step_time_is_compute_waiting_and_exposed_time():
    ranks = [rank_figures([1.0, 1.0, 1.0]), rank_figures([1.0, 3.0, 2.0])]
    communication_fields = rank_communication.merge_communication(ranks, [4.0, 5.0], nodes=1)
    assert communication_fields["compute_seconds"] == [1.0, 2.0, 1.5]
    assert communication_fields["waiting_seconds"] == [0.0, 1.0, 0.5]
    # The slowest rank of each step takes 1, 3 and 2 s; the median is 2 s.
    assert communication_fields["exposed_seconds"] == [2.0, 3.0]


def test_interface_bytes_are_counted_once_per_node():
    ranks = [rank_figures([1.0], sent) for sent in (10.0, 10.0, 20.0, 20.0)]
    assert (
        rank_communication.merge_communication(ranks, [1.0], nodes=2)["interface_bytes"]["eth0"]
        == 30.0
    )
    assert (
        rank_communication.merge_communication(ranks, [1.0], nodes=1)["interface_bytes"]["eth0"]
        == 10.0
    )


def test_link_figures_name_their_node(record):
    ranks = [rank_figures([1.0], sent) for sent in (10.0, 10.0, 20.0, 20.0)]
    communication_fields = rank_communication.merge_communication(ranks, [1.0], nodes=2)
    links = [
        (link_fields["node"], link_fields["name"], link_fields["sent_bytes"])
        for link_fields in communication_fields["links"]
    ]
    assert links == [(0, "eth0", 10.0), (0, "lo", 1.0), (1, "eth0", 20.0), (1, "lo", 1.0)]
    assert communication_fields["uncounted"] == {"pcie": "no rank used an NVIDIA device"}
    model = Communication(strategy="ddp", bytes_per_step=800, **communication_fields)
    assert model.links[2].received_bytes == 40.0


def test_links_of_every_gpu_are_counted_once():
    ranks = [rank_figures([1.0]) for _ in range(3)]
    for rank, gpu in enumerate(("0", "1", "1")):
        ranks[rank]["links"].append(build_link_figures("pcie", gpu, 5.0 + rank))
    links = rank_communication.merge_communication(ranks, [1.0], nodes=1)["links"]
    assert [(link["name"], link["sent_bytes"]) for link in links] == [
        ("eth0", 1000.0),
        ("lo", 1.0),
        ("0", 5.0),
        ("1", 6.0),
    ]


def test_rank_without_figures_makes_communication_unknown():
    assert (
        rank_communication.merge_communication([rank_figures([1.0]), None], [1.0], nodes=1) is None
    )


@pytest.mark.parametrize(("ranks", "server", "expected_bytes"), [(2, False, 800), (4, False, 2400)])
def test_all_reduce_sends_two_payloads_per_additional_rank(ranks, server, expected_bytes):
    assert rank_communication.min_bytes_of_all_ranks(400, ranks, server=server) == expected_bytes


def test_parameter_server_receives_and_returns_all_gradients():
    assert rank_communication.min_bytes_of_all_ranks(400, 3, server=True) == 2400


def test_communication_shares_are_medians_over_launches(record):
    def launch(exposed, interfaces, **chosen):
        return record(
            steps=(0.1, 0.1),
            **chosen,
            fields={
                "communication": Communication(
                    strategy="ddp",
                    bytes_per_step=800,
                    exposed_seconds=(exposed,) * 2,
                    waiting_seconds=(0.01,),
                    compute_seconds=(0.05,),
                    payload_bytes=400,
                    interface_bytes=interfaces,
                )
            },
        )

    single_node = [
        launch(0.02, {"lo": 810.0}),
        launch(0.04, {"lo": 820.0}),
        launch(0.04, {"lo": 830.0}),
    ]
    shares = communication.step_shares(single_node)
    assert (shares.compute, shares.waiting) == pytest.approx((0.5, 0.1))
    assert shares.exposed == pytest.approx(0.4)
    assert (shares.bytes_per_step, shares.counted_bytes) == (800, 820.0)
    # MNIST has 60,000 images; the batch is 4.
    assert (shares.epoch_steps, shares.bytes_per_epoch) == (15000, 12_000_000)
    assert shares.counted_bytes_per_epoch == 15000 * 820.0
    unknown_data = communication.step_shares([launch(0.02, {"lo": 810.0}, data="custom")])
    assert (unknown_data.bytes_per_epoch, unknown_data.counted_bytes_per_epoch) == (None, None)
    interface_bytes = {"lo": 5.0, "eth0": 7.0}
    assert communication.step_shares([launch(0, interface_bytes)]).counted_bytes == 5.0
    two_nodes = {"nodes": 2, "ranks": 2, "global_batch_size": 8, "launcher": "slurm"}
    assert communication.step_shares([launch(0, interface_bytes, **two_nodes)]).counted_bytes == 7.0
    assert communication.step_shares([launch(0, {"lo": 0.0})]).counted_bytes is None
    assert communication.step_shares([record()]) is None
    assert shares.can_tell_exchange
    disturbed = communication.step_shares([launch(-0.01, interface_bytes)])
    assert disturbed.exposed == pytest.approx(-0.1) and not disturbed.can_tell_exchange


@pytest.mark.parametrize(
    ("workload", "data", "batch", "steps"),
    [
        ("caffenet", "synthetic", 256, 5004),  # ImageNet has 1,281,167 images
        ("resnet50", "synthetic", 32, 40036),
        ("convnet", "synthetic", 100, 500),
        ("lenet", "digits", 64, 22),
        ("lenet", "synthetic", 64, 937),
        ("lenet", "custom", 64, None),
        ("custom", "synthetic", 64, None),
    ],
)
def test_epoch_steps_equal_the_batches_of_the_data_set(cell, workload, data, batch, steps):
    settings = {"workload": workload, "data": data}
    request = cell(global_batch_size=batch, batch_size_per_rank=batch, **settings).request(1)
    assert communication.epoch_steps(request) == steps


def test_only_synthetic_input_counts_a_chosen_number_of_images(cell):
    sizes = {"global_batch_size": 64, "batch_size_per_rank": 64}
    prepared = PreparedSet(
        **{"digest": "sha256:1", "format": "raw", "channels": 1, "classes": 10, "shape": None},
        **{"train_images": 640, "medium": "ext4 on nvme"},
    )
    steps = {
        data: communication.epoch_steps(
            cell(data=data, data_set=data_set, **sizes).request(1), synthetic_epoch_images=1281167
        )
        for data, data_set in {"synthetic": None, "digits": None, "mine": prepared}.items()
    }
    assert steps == {"synthetic": 20018, "digits": 22, "mine": 10}


def test_communication_table_has_step_times_and_a_single_rank_only_computes(record):
    table = tables.to_text(leaderboard.build_tables([record(steps=(0.05,))], {}), "communication")
    lines = table.splitlines()
    [number] = [number for number, line in enumerate(lines) if "computing" in line]
    start = lines[number].index("computing")
    names, values = (re.split("  +", lines[n][start:].strip()) for n in (number, number + 2))
    texts = dict(zip(names, values, strict=True))
    assert (texts["computing"], texts["waiting"], texts["exchange"]) == ("100%", "0%", "0%")
    assert texts["median step"] == "50.0 ms" and texts["to send"] == "–"


def test_communication_table_has_bytes_per_step_and_epoch(record):
    communication_figures = Communication(
        strategy="ddp",
        bytes_per_step=2_000_000,
        exposed_seconds=(0.02,),
        waiting_seconds=(0.01,),
        compute_seconds=(0.05,),
        interface_bytes={"lo": 2_100_000.0},
    )
    rank_settings = {"ranks": 2, "strategy": "ddp", "scaling": "weak", "global_batch_size": 8}
    launch_record = record(fields={"communication": communication_figures}, **rank_settings)
    table = tables.to_text(leaderboard.build_tables([launch_record], {}), "communication")
    # MNIST has 60,000 images; the batch is 8.
    assert all(figure in table for figure in ("2 MB", "2.1 MB", "15 GB", "15.8 GB"))
