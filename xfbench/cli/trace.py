"""`xfbench trace`: write the numbers that a framework computes, so that others can check them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from xfbench.base.terminal_text import print_legibly as print
from xfbench.cli.options import (
    check_output_file,
    framework_option,
    parse_options,
    with_settings,
    workload_option,
)
from xfbench.model import settings

_FrameworkOption = Annotated[
    str,
    framework_option("Framework to trace."),
]
_WorkloadOption = Annotated[
    str,
    workload_option("Workload to train."),
]
_OutputOption = Annotated[
    Path, typer.Option("--output", "-o", help="File to write (.npz).", show_default=False)
]


@with_settings((replace(settings.BY_NAME["data"], is_list=False), "time_limit", "python"))
def trace(
    framework: _FrameworkOption,
    workload: _WorkloadOption,
    output: _OutputOption,
    precision: Annotated[str, typer.Option(help="Precision: float32 or float64.")] = "float32",
    kernel: Annotated[
        str, typer.Option(help="Kernel library: see `xfbench framework list`.")
    ] = "default",
    device: Annotated[str, typer.Option(help="Device: cpu or cuda.")] = "cpu",
    threads: Annotated[
        int,
        typer.Option(
            min=1, help="Number of threads. With one thread, every run writes the same bits."
        ),
    ] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in the batch.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Number of updates.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and data.")] = 0,
    **options: Any,
) -> None:
    """Write input, initial weights, first gradients, losses and final weights to FILE.npz.

    All steps use the same batch and the workload's own solver. Dropout is switched off.

    \b
        xfbench trace --framework caffe --workload lenet --output caffe.npz
    """
    from xfbench.execution import tracing
    from xfbench.model.plan import DEFAULT_TIME_LIMIT
    from xfbench.planning import experiment

    check_output_file(output, (".npz",))
    values = parse_options(options)
    matrix = experiment.build_matrix(
        framework=[framework],
        workload=[workload],
        precision=[precision],
        kernel=[kernel],
        device=[replace(settings.BY_NAME["device"], is_list=False).parse(device)],
        threads=[threads],
        batch_size=[batch_size],
        data=options["data"],
        steps=steps,
        seed=seed,
        launches=1,
    )
    observation = tracing.trace_only_cell(
        matrix, values.get("python", {}), output, values.get("time_limit", DEFAULT_TIME_LIMIT)
    )
    print(f"{output}: {framework} {observation['framework_version']}, {workload}, {steps} steps")
