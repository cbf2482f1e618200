"""`xfbench run`: measure a matrix of cells, or the built-in experiment `quick`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from xfbench.cli.options import DryRun, Json, Pythons, Results, positive, pythons, words

_FRAMEWORKS = "caffe,mxnet,tensorflow,torch"


def run(
    framework: Annotated[
        str | None, typer.Option(help=f"Frameworks (default: {_FRAMEWORKS}).", show_default=False)
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Networks: see `xfbench workload list`.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda.")] = "cpu",
    precision: Annotated[str, typer.Option(help="float32, float64.")] = "float32",
    kernel: Annotated[
        str, typer.Option(help="Kernel libraries: see `xfbench framework list`.")
    ] = "default",
    threads: Annotated[
        str | None, typer.Option(help="Threads per rank (default: the cores).", show_default=False)
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(help="Images per update (default: the published).", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="digits or synthetic (default: the workload's).", show_default=False),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Timed steps (default: 20).", show_default=False)
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Whole epochs with an evaluation after each.")
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Untimed steps after the first.")] = 3,
    launches: Annotated[int, typer.Option(min=1, help="Fresh processes per cell.")] = 3,
    seed: Annotated[
        int, typer.Option(min=0, help="Of weights, data and the order of launches.")
    ] = 0,
    python: Pythons = None,
    results: Results = None,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds one launch may take.")] = 1800,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out launches already done.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Measure: every combination of the lists given is a cell, every launch a fresh process.

    With no framework, workload or other setting, the experiment `quick`.

    \b
    xfbench run
    xfbench run --framework torch,mxnet --workload alexnet --batch-size 16 --threads 1,2
    xfbench run --framework torch --workload lenet --epochs 5 --launches 5
    """
    from xfbench import experiment, paths, progress, runner
    from xfbench.store import Store

    interpreters = pythons(python)
    if (framework or workload) is None and steps is None and epochs is None:
        matrices = list(experiment.load("quick").matrix)
    else:
        matrices = [
            experiment.matrix(
                framework=words(framework or _FRAMEWORKS, str, "--framework"),
                workload=words(workload or "lenet,convnet", str, "--workload"),
                device=words(device, str, "--device"),
                precision=words(precision, str, "--precision"),
                kernel=words(kernel, str, "--kernel"),
                threads=words(threads, positive, "--threads"),
                batch_size=words(batch_size, positive, "--batch-size"),
                data=data,
                steps=steps,
                epochs=epochs,
                warmup=warmup,
                launches=launches,
                seed=seed,
            )
        ]
    requests = runner.plan(experiment.cells(matrices, interpreters), seed)
    store = Store(paths.results(results))
    if resume:
        requests = runner.remaining(requests, store)
    if dry_run:
        if as_json:
            print(
                json.dumps({"requests": [request.model_dump(mode="json") for request in requests]})
            )
        else:
            for request in requests:
                batch = f"batch {request.global_batch_size}"
                print(f"{request.label()} · {batch} · launch {request.launch}")
        return
    session = runner.Session(store, time_limit=time_limit)
    records = progress.follow(requests, session, interpreters)
    summary: dict[str, int] = {}
    for record in records:
        summary[record.status] = summary.get(record.status, 0) + 1
    if as_json:
        print(json.dumps({"records": [r.document() for r in records], "summary": summary}))
    else:
        progress.conclude(records, store)
    if set(summary) - {"ok", "unsupported"}:
        raise typer.Exit(1)
