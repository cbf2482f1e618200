"""Test of predicting more ranks from small runs over links of a known speed."""

import json

import pytest

from tests.cluster import shaping
from tests.cluster.commands import XFBENCH, run_until_mpich_starts
from tests.measuring import prediction

pytestmark = pytest.mark.deep

MEGABITS = 100


@pytest.fixture
def slow_cluster(network, cluster):
    """A cluster whose links pass 100 Mbit/s."""
    shaping.limit_links(cluster, MEGABITS)
    yield cluster
    shaping.remove_limits(cluster)


def test_runs_on_a_slow_link_predict_more_ranks(slow_cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("XFBENCH_ADAPTERS", str(tmp_path / "adapters"))
    prediction.write_adapter(tmp_path / "adapters" / "sleeping", [("lenet", "weak", 8, "mpi")])
    results = ["--results", str(tmp_path / "results")]
    options = "run --framework sleeping --workload lenet --batch-size 8 --scaling weak --no-verify"
    options += " --launcher slurm --threads 1 --pinning none --steps 8 --launches 2"
    for ranks in (1, 2, 4):
        rank_options = f" --ranks {ranks} --nodes {ranks}" + (
            " --strategy mpi" if ranks > 1 else ""
        )
        words = ["salloc", "--quiet", f"-N{ranks}", *XFBENCH, *(options + rank_options).split()]
        run_completed = run_until_mpich_starts(
            slow_cluster, *words, *results, results=tmp_path / "results"
        )[-1]
        assert run_completed.returncode == 0, run_completed.stderr
    predict_completed = slow_cluster.run(
        *XFBENCH, *"predict --to-ranks 8,64 --json --results".split(), results[1]
    )
    assert predict_completed.returncode == 0, predict_completed.stderr
    document = json.loads(predict_completed.stdout)
    points = {point["ranks"]: point for point in document["points"]}
    assert set(points) == {1, 2, 4, 8, 64}
    assert points[64]["beyond_data"] == 16 and points[4]["measured"] > 0
    assert points[64]["efficiency"] < points[8]["efficiency"] < 1
    # The fit cannot exceed the link's bandwidth by more than the bursts of the token bucket.
    assert 8e-6 * document["fit"]["bandwidth"]["value"] < 1.25 * MEGABITS
    faster_link = slow_cluster.run(
        *XFBENCH, *"predict --to-ranks 8 --link 10Gbit,10us --json --results".split(), results[1]
    )
    [*_, point] = json.loads(faster_link.stdout)["points"]
    assert point["images_per_second"]["low"] > points[8]["images_per_second"]["high"]
    table = slow_cluster.run(*XFBENCH, *"predict --results".split(), results[1]).stdout
    assert "beyond the data" in table and "16 times" in table
