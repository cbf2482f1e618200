"""What went over links, against what ranks have to send at the least."""

import pytest

from tests.analysis.test_communication import link
from xfbench.records.record import Communication

DEVICE = {**link("nvlink", "0", 4e6), "node": 0}
NETWORK = {**link("network", "eth0", 3e6), "node": 0, "bits_per_second": 1e9}


@pytest.fixture
def exchanged(record):
    """A function: launches whose links had these, with what else a communication says."""

    def make(*launches, **told):
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
                        links=found,
                        **told,
                    )
                },
            )
            for number, found in enumerate(launches, 1)
        ]

    return make


@pytest.fixture
def told(study, found):
    """A function: the finding over these records."""

    def of(records):
        matrix = {"ranks": [2], "scaling": "weak"}
        return found(study({"name": "links"}, matrix), records)

    return of


def test_link_table_shows_traffic_per_epoch_and_its_ratio(exchanged, told):
    twice = {**NETWORK, "sent_bytes": 3.03e6}
    finding = told(exchanged([NETWORK, DEVICE], [twice, DEVICE]))
    # An epoch has 60,000 images in batches of 8.
    rows = {one.at: one for one in finding.values}
    assert rows["network eth0"].interval.value == pytest.approx(3.015e6 * 7500 / 1e9, rel=1e-3)
    assert rows["network eth0"].note == (
        "3.01 MB per step, 1.51 times the 2 MB that all ranks must send, "
        "at least 0.024 s on the link"
    )
    assert rows["nvlink 0 out"].interval.value == pytest.approx(30.0)
    assert rows["nvlink 0 in"].interval.value == pytest.approx(60.0)
    assert "nvlink 0 in" in finding.sentence and "4 times the 2 MB" in finding.sentence


def test_uncounted_link_is_reported_with_its_reason(exchanged, told):
    why = {"uncounted": {"pcie": "no rank used an NVIDIA device"}}
    finding = told(exchanged([{**NETWORK, "sent_bytes": 0.0}], **why))
    [row] = finding.values
    assert row.interval is None and row.reason.startswith("no traffic")
    assert finding.notes == ("pcie was not counted: no rank used an NVIDIA device",)
    assert finding.sentence == "No traffic was counted on any link."


def test_old_records_use_interface_traffic(exchanged, told):
    finding = told(exchanged([], interface_bytes={"lo": 4e6}))
    assert [one.at for one in finding.values] == ["loopback lo"]
    assert finding.values[0].interval.value == pytest.approx(30.0)
    assert told(exchanged([])).values[0].reason == "no link has a counter"
