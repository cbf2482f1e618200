"""`xfbench trace`: one framework's numbers for anyone to check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xfbench.cli.options import PythonsOption, parse_interpreters


def trace(
    framework: Annotated[str, typer.Option(help="The framework to trace.", show_default=False)],
    workload: Annotated[str, typer.Option(help="The network.", show_default=False)],
    output: Annotated[Path, typer.Option(help="The .npz file to write.", show_default=False)],
    precision: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    kernel: Annotated[str, typer.Option(help="The kernel library.")] = "default",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[
        int, typer.Option(min=1, help="Threads; one gives the same bits each time.")
    ] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in the one batch.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Updates.")] = 3,
    data: Annotated[
        str | None,
        typer.Option(help="digits or synthetic (default: the workload's).", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and data.")] = 0,
    python: PythonsOption = None,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds it may take.")] = 1800,
) -> None:
    """Write input, initial weights, first gradients, losses and final weights to FILE.npz.

    Training mode, dropout as the identity, the workload's own solver, one batch for all steps.

    \b
    xfbench trace --framework caffe --workload lenet --output caffe.npz
    """
    from xfbench import experiment
    from xfbench.running import tracing

    matrix = experiment.matrix(
        framework=[framework],
        workload=[workload],
        precision=[precision],
        kernel=[kernel],
        device=[device],
        threads=[threads],
        batch_size=[batch_size],
        data=data,
        steps=steps,
        seed=seed,
        launches=1,
    )
    observation = tracing.trace(matrix, parse_interpreters(python), output, time_limit)
    print(f"{output}: {framework} {observation['framework_version']}, {workload}, {steps} steps")
