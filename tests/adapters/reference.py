"""The reference's results for a workload: the truth in float64, and the effect of rounding."""

import functools
from collections import defaultdict

import numpy as np

from tests.adapters.cases import WORKLOADS
from tests.adapters.inside import BATCH_SIZE, distance, measure
from xfbench.adapters.reference import graph, train
from xfbench.adapters.reference.precision import PRECISIONS
from xfbench.worker.check import perturb
from xfbench.worker.input import synthetic_batch
from xfbench.worker.protocol import Group, Options
from xfbench.workloads.initial import initial_parameters

MAX_DRAWS = 64
# A unit in the last place, in units of float32.
UNITS = {"float32": 1, "float16": 2**13, "bfloat16": 2**16}


@functools.cache
def train_reference(workload, precision, steps):
    """Return the results of a training on the reference, by name (`inside.measure`)."""
    workload_spec = WORKLOADS[workload]
    options = Options("numpy", 1, precision, dropout="identity")
    trainer = train.build(workload_spec.network, workload_spec.solver, options, Group())
    return measure(trainer, workload_spec, steps)


class Reference:
    """The truth of each workload in a file, and random draws of rounding; made when needed."""

    def __init__(self, folder):
        self.folder = folder
        self.draws = defaultdict(list)

    def truth(self, workload):
        """Return the file with the losses, gradients and running averages of one update."""
        path = self.folder / f"{workload}.npz"
        if not path.exists():
            # Not `train_reference`, which would keep the large ones in memory.
            arrays = train_reference.__wrapped__(workload, "float64", 1)
            averages = ("/mean", "/variance")
            np.savez(
                path,
                **{
                    name: value
                    for name, value in arrays.items()
                    if name.startswith(("loss", "test_loss", "gradient/"))
                    or (name.startswith("final/") and name.endswith(averages))
                },
            )
        return path

    def unexplained(self, case, distances):
        """Return a line for each distance from the truth that rounding does not explain.

        The limit is ten times the largest distance of the reference in the case's precision, over
        several draws. The first draw is unchanged. The others change images and weights by at most
        one unit in the last place. There are more draws as long as a distance is unexplained,
        because one draw can miss the effect of a single unit. Final weights are left out.
        """
        distances = {k: v for k, v in distances.items() if not k.startswith("final/")}
        parameters = WORKLOADS[case.workload].network.parameters.values()
        assert len(distances) == 2 + sum(parameter.learned for parameter in parameters)
        if case.precision == "float64":
            return lines_above(dict.fromkeys(distances, 1e-8), distances)
        draws = self.draws[case.workload, case.precision]
        while True:
            largest = {name: max((d[name] for d in draws), default=0.0) for name in distances}
            unexplained = lines_above(
                {k: 1e-4 + 10 * value for k, value in largest.items()}, distances
            )
            if draws and (not unexplained or len(draws) == MAX_DRAWS):
                return unexplained
            draws.append(self._draw(case.workload, case.precision, len(draws)))

    def _draw(self, workload, precision, number):
        """Return the distances from the truth of the reference in `precision`, by name."""
        workload_spec, rounded = WORKLOADS[workload], PRECISIONS[precision]
        network = workload_spec.network
        random = np.random.RandomState(number)
        max_units = UNITS[precision] if number else 0
        images, labels = synthetic_batch(workload_spec, BATCH_SIZE, 0)
        weights = {
            name: perturb(value, random, max_units)
            for name, value in initial_parameters(network, 0).items()
        }
        images = perturb(images, random, max_units)
        run = functools.partial(graph.forward, network, weights, images, labels, precision=rounded)
        activations = run(training=True)
        values = {"loss": [activations.loss], "test_loss": [run(training=False).loss]}
        gradients = graph.backward(network, weights, activations).parameters
        values |= {f"gradient/{name}": value for name, value in gradients.items()}
        with np.load(self.truth(workload), allow_pickle=False) as truth:
            return {name: distance(value, truth[name]) for name, value in values.items()}


def lines_above(allowed, distances):
    """Return a line for each distance above its limit."""
    return [
        f"{name}: {value:.1e}, allowed {allowed[name]:.1e}"
        for name, value in distances.items()
        if not value <= allowed[name]
    ]
