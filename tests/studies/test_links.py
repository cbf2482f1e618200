"""Tests of link traffic compared with the minimum that the ranks must send."""

import pytest
from pydantic import ValidationError

from tests.sample_records import build_link_figures
from xfbench.model.record import Communication

DEVICE = {**build_link_figures("nvlink", "0", 4e6), "node": 0}
NETWORK = {**build_link_figures("network", "eth0", 3e6), "node": 0, "bits_per_second": 1e9}


@pytest.fixture
def make_link_launches(record):
    """Return a function that makes a launch for each given list of links."""

    def make(*links_by_launch, **communication_fields):
        shared = {"ranks": 2, "strategy": "ddp", "scaling": "weak", "global_batch_size": 8}
        return [
            record(
                launch=number,
                **shared,
                batch_size_per_rank=4,
                fields={
                    "communication": Communication(
                        strategy="ddp",
                        bytes_per_step=2_000_000,
                        exposed_seconds=(0.01,),
                        waiting_seconds=(0.01,),
                        links=links,
                        **communication_fields,
                    )
                },
            )
            for number, links in enumerate(links_by_launch, 1)
        ]

    return make


@pytest.fixture
def make_link_finding(make_study, make_finding):
    """Return a function that returns the link finding of records."""

    def make(records, **analysis):
        matrix = {"ranks": [2], "scaling": "weak"}
        return make_finding(make_study({"name": "links", **analysis}, matrix), records)

    return make


def test_link_table_shows_traffic_per_epoch_and_its_ratio(make_link_launches, make_link_finding):
    busier_network = {**NETWORK, "sent_bytes": 3.03e6}
    finding = make_link_finding(make_link_launches([NETWORK, DEVICE], [busier_network, DEVICE]))
    # An epoch has 60,000 images in batches of 8: 7,500 steps.
    rows = {value.at: value for value in finding.values}
    assert rows["network eth0"].interval.value == pytest.approx(3.015e6 * 7500 / 1e9, rel=1e-3)
    assert rows["network eth0"].note == (
        "3.01 MB per step, 1.51 times the 2.00 MB that all ranks must send, "
        "at least 0.024 s on the link"
    )
    assert rows["nvlink 0 out"].interval.value == pytest.approx(30.0)
    assert rows["nvlink 0 in"].interval.value == pytest.approx(60.0)
    assert "nvlink 0 in" in finding.sentence and "4 times the 2.00 MB" in finding.sentence


def test_uncounted_link_is_reported_with_its_reason(make_link_launches, make_link_finding):
    communication_fields = {"uncounted": {"pcie": "no rank used an NVIDIA device"}}
    finding = make_link_finding(
        make_link_launches([{**NETWORK, "sent_bytes": 0.0}], **communication_fields)
    )
    [row] = finding.values
    assert row.interval is None and row.reason.startswith("no traffic")
    assert finding.notes == ("pcie was not counted: no rank used an NVIDIA device",)
    assert finding.sentence == "No figure per epoch is known for any link."


def test_old_records_use_interface_traffic(make_link_launches, make_link_finding):
    finding = make_link_finding(make_link_launches([], interface_bytes={"lo": 4e6}))
    assert [value.at for value in finding.values] == ["loopback lo"]
    assert finding.values[0].interval.value == pytest.approx(30.0)
    assert make_link_finding(make_link_launches([])).values[0].reason == "no link was counted"


def test_synthetic_input_may_count_the_epoch_of_another_data_set(
    make_link_launches, make_link_finding
):
    records = make_link_launches([DEVICE], compute_seconds=(0.05,))
    [out, _] = make_link_finding(records, epoch_images=1281167).values
    [exchanged] = make_link_finding(
        records, name="values", of="exchanged_gigabytes", epoch_images=1281167
    ).values
    [of_workload] = make_link_finding(records, name="values", of="exchanged_gigabytes").values
    # ImageNet has 160,145 batches of 8 images, and MNIST, with which LeNet was published, 7,500.
    assert out.interval.value == pytest.approx(160145 * 4e6 / 1e9)
    assert exchanged.interval.value == pytest.approx(160145 * 2e6 / 1e9)
    assert of_workload.interval.value == pytest.approx(7500 * 2e6 / 1e9)


def test_epoch_images_needs_bytes_of_an_epoch(make_study):
    with pytest.raises(ValidationError, match='epoch_images needs name = "links"'):
        make_study({"name": "values", "epoch_images": 1281167})
