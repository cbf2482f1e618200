"""Facts about a workload: its digest, size, work per image, and layers with their shapes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from xfbench.base import digests
from xfbench.model.record import WorkloadFacts
from xfbench.workloads import Workload
from xfbench.workloads.layers import Convolution, Network


def workload_facts(workload: Workload) -> WorkloadFacts:
    """Return the facts about a workload that a record stores.

    The digest covers the network with its initial values, the solver and the input.
    """
    network = workload.network
    document = workload.to_json()
    return WorkloadFacts(
        name=network.name,
        digest=digests.of_json({key: document[key] for key in ("network", "solver", "pixels")}),
        input_shape=network.input_shape,
        classes=network.classes,
        parameters=network.learned_count,
        forward_macs_per_image=network.forward_macs,
        train_macs_per_image=network.train_macs,
    )


def min_train_macs_per_image(network: Network) -> int:
    """Return the number of multiplications that a training step needs at least, per image.

    Winograd's algorithms and those with Fourier transforms need fewer multiplications than the
    direct computation of a convolution, which `Network.train_macs` counts. But each output needs at
    least one for each input channel, however large the kernel is (S. Winograd, "Arithmetic
    complexity of computations", 1980).
    """
    return sum(
        layer.macs(network.input_shapes(layer))
        * (2 if layer.inputs == ("data",) else 3)
        // (layer.kernel**2 if isinstance(layer, Convolution) else 1)
        for layer in network.layers
    )


def describe_workload(workload: Workload) -> dict[str, Any]:
    """Return the document that `workload show --json` prints, with all layers."""
    network = workload.network
    return {
        **workload_facts(workload).model_dump(mode="json"),
        "source": workload.source,
        "batch_size": workload.batch_size,
        "solver": asdict(workload.solver),
        "layers": [
            {
                "name": layer.name,
                "type": type(layer).__name__,
                "inputs": list(layer.inputs),
                "output_shape": list(network.shapes[layer.name]),
                "parameters": {
                    kind: list(parameter.shape)
                    for kind, parameter in layer.parameters(network.input_shapes(layer)).items()
                },
            }
            for layer in network.layers
        ],
    }
