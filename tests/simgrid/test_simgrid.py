"""Times that `communication_cost` gives an all-reduce, beside those that SimGrid simulates.

SimGrid runs real code of MPI libraries: Casanova, Giersch, Legrand, Quinson and Suter,
"Versatile, scalable, and accurate simulation of distributed applications and platforms", 2014.
"""

import subprocess
from pathlib import Path

import pytest

from tests import debian
from xfbench.model import communication_cost
from xfbench.model.communication_cost import Link

PACKAGES = ["libsimgrid-dev", "gcc"]
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="nodes" prefix="node" suffix="" radical="0-{last}" speed="1Gf"
           bw="{bandwidth}Bps" lat="{half}s"/>
</platform>
"""
# Messages share links fairly and take what the link says, no protocol's factors; no computing.
SETTINGS = ["network/model:CM02", "network/TCP-gamma:0", "smpi/simulate-computation:no"]
ALGORITHMS = {"ring": "lr", "halving": "rab"}


@pytest.fixture(scope="module")
def simulate(tmp_path_factory):
    """A function: simulated seconds of an all-reduce of so many bytes."""
    if reason := debian.install_missing(["smpicc", "gcc"], PACKAGES):
        debian.skip_test(f"no SimGrid: {reason}")
    folder = tmp_path_factory.mktemp("simgrid")
    source = Path(__file__).with_name("allreduce.c")
    compile_command = ["smpicc", "-O2", str(source), "-o", "allreduce"]
    subprocess.run(compile_command, cwd=folder, check=True, capture_output=True, timeout=120)

    def simulate_seconds(algorithm, ranks, payload, link):
        # A message passes the sender's link and the receiver's.
        values = {"last": ranks - 1, "bandwidth": link.bandwidth, "half": link.latency / 2}
        (folder / "platform.xml").write_text(PLATFORM.format(**values))
        settings = [*SETTINGS, f"smpi/allreduce:{ALGORITHMS[algorithm]}"]
        process = subprocess.run(
            [
                *("smpirun", "-np", str(ranks), "-platform", "platform.xml"),
                *(f"--cfg={setting}" for setting in settings),
                *("--log=root.thresh:error", "./allreduce", str(payload // 4)),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert process.returncode == 0, process.stderr[-1000:]
        return float(process.stdout.split()[-1])

    return simulate_seconds


LINKS = {
    "1 Gbit/s": Link.parse("1Gbit,25us"),
    "100 Gbit/s": Link.parse("100Gbit,1us"),
}
MEGABYTES_4 = 4 * 2**20


@pytest.mark.deep
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("ranks", [4, 12, 64, 256])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_model_matches_the_simulated_all_reduce(simulate, algorithm, ranks, link):
    predicted_seconds = communication_cost.exchange_seconds(
        algorithm, ranks, MEGABYTES_4, LINKS[link]
    )
    # SimGrid lets acknowledgements take a twentieth of the way back.
    assert predicted_seconds == pytest.approx(
        simulate(algorithm, ranks, MEGABYTES_4, LINKS[link]), rel=0.1
    )


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_model_matches_the_simulated_all_reduce_of_1024_ranks(simulate, algorithm):
    link = LINKS["1 Gbit/s"]
    predicted_seconds = communication_cost.exchange_seconds(algorithm, 1024, MEGABYTES_4, link)
    assert predicted_seconds == pytest.approx(simulate(algorithm, 1024, MEGABYTES_4, link), rel=0.1)


@pytest.mark.deep
def test_ring_and_halving_times_differ(simulate):
    """So that the tests above can fail: on 256 ranks and small messages they are far apart."""
    link = LINKS["1 Gbit/s"]
    ring = communication_cost.exchange_seconds("ring", 256, 2**18, link)
    assert ring > 2 * simulate("halving", 256, 2**18, link)
