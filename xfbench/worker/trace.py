"""A trace of a framework's numbers: the gradients, losses and weights of a few steps.

All steps train on the same batch, with the workload's own solver and without dropout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np

from xfbench.worker.input import open_data_set
from xfbench.worker.protocol import Group, Options, Trainer
from xfbench.workloads import Workload
from xfbench.workloads.initial import initial_parameters


def train_and_write_trace(
    workload: Workload,
    request: dict[str, Any],
    options: Options,
    build: Callable[..., Trainer],
    output_npz: Path,
    array_groups: list[str] | None = None,
) -> dict[str, Any]:
    """Train `request["steps"]` steps and write a trace to `output_npz`. Return the runtime facts.

    The trace is an `.npz` file without pickles. `array_groups` names the groups of arrays to write;
    None: all groups. The groups are:

    - "input": input/data (N, C, H, W) and input/label (N,).
    - "initial": initial/<parameter>, before the first step.
    - "gradient": gradient/<parameter>, of the first step.
    - "loss": loss (steps,), before each step's update.
    - "final": final/<parameter>, after the last step.
    """
    batch_size, seed = request["batch_size_per_rank"], request["seed"]
    data = open_data_set(request["data"], workload, batch_size, seed)
    images, labels = data.first_batch(batch_size, seed)
    trainer = build(workload.network, workload.solver, options, Group())
    initial = initial_parameters(workload.network, seed)
    trainer.assign(initial)
    batch = trainer.load(images, labels)
    arrays: dict[str, np.ndarray] = {"input/data": images, "input/label": labels}
    arrays.update({f"initial/{name}": value for name, value in trainer.parameters().items()})
    arrays.update({f"gradient/{name}": value for name, value in trainer.gradients(batch).items()})
    trainer.assign(initial)
    losses = []
    for _ in range(request["steps"]):
        trainer.step(batch)
        losses.append(trainer.wait_for_loss())
    arrays["loss"] = np.asarray(losses, np.float64)
    arrays.update({f"final/{name}": value for name, value in trainer.parameters().items()})
    if array_groups is not None:
        arrays = {name: a for name, a in arrays.items() if name.split("/")[0] in array_groups}
    with output_npz.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return {"observed": trainer.runtime_info()}
