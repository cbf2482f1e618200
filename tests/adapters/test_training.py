"""Real training, in every framework, through the whole way from request to record."""

import subprocess

import pytest

from tests import turns
from xfbench import adapter
from xfbench.adapters.caffe import prototxt
from xfbench.environments import environment
from xfbench.workloads import workloads

FRAMEWORKS = ["caffe", "ipex", "jax", "mxnet", "tensorflow", "torch"]


@pytest.mark.parametrize("framework", turns.by_day(FRAMEWORKS, 2))
def test_lenet_learns_the_digits_whatever_the_seed(launch, framework):
    """At least 97 % of the test set, in the mean of three seeds, well within twenty epochs."""
    accuracies = []
    for seed in (0, 1, 2):
        record = launch(framework, workload=["lenet"], epochs=8, seed=seed)
        assert record.status == "ok", record.reason
        assert len(record.learning) == 8
        assert record.learning[-1].train_loss < record.learning[0].train_loss / 5
        assert len(record.measurement.losses) == 8 * (1437 // 64)
        accuracies.append(record.learning[-1].test_accuracy)
    assert sum(accuracies) / 3 >= 0.97


@pytest.mark.parametrize("workload", sorted(workloads()))
def test_an_exported_prototxt_trains_in_real_caffe_on_its_own(workload, tmp_path):
    described = adapter.load("caffe")
    found = environment.ensure(described)
    net, solver = tmp_path / "net.prototxt", tmp_path / "solver.prototxt"
    net.write_text(prototxt.train_val(workloads()[workload], 1))
    solver.write_text(prototxt.solver(workloads()[workload], str(net)))
    script = (
        "import caffe, sys\n"
        "net = caffe.SGDSolver(sys.argv[1]).net\n"
        "print(sum(b.data.size for n, p in net.params.items() for b in p))\n"
    )
    shown = subprocess.run(
        [found.interpreter, "-c", script, solver],
        env=found.variables(described, "openblas", 1),
        capture_output=True,
        text=True,
        check=True,
    )
    parameters = workloads()[workload].network.parameters.values()
    averages = [p for p in parameters if not p.learned]
    # Caffe's batch norm has one divisor beside each mean and variance.
    expected = sum(_size(p.shape) for p in parameters) + len(averages) // 2
    assert int(shown.stdout.split()[-1]) == expected


def _size(shape):
    count = 1
    for side in shape:
        count *= side
    return count
