"""`xfbench workload`: list workloads, show a workload, or export it for another tool."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import terminal_width
from xfbench.cli.options import JsonOption

app = typer.Typer(
    name="workload",
    help="Workloads: list, show, export.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_NameArgument = Annotated[str, typer.Argument(help="Name of a workload.", show_default=False)]


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List workloads with their input shape, parameters, operations, batch size and data."""
    from xfbench.rendering import formats
    from xfbench.workloads import workloads

    workload_by_name = workloads()
    if as_json:
        print(json.dumps({"workloads": list(workload_by_name)}))
        return
    rows = [
        (
            name,
            "×".join(map(str, workload.network.input_shape)),
            f"{workload.network.learned_count:,}",
            f"{workload.network.forward_macs:,}",
            str(workload.batch_size),
            workload.data,
        )
        for name, workload in workload_by_name.items()
    ]
    headers = ("name", "input", "parameters", "forward MACs/image", "batch", "data")
    print(formats.render_listing(headers, rows, terminal_width(), ("data",)))


@app.command()
def show(name: _NameArgument, as_json: JsonOption = False) -> None:
    """Show one workload: every layer with its output and parameters.

    \b
        xfbench workload show googlenet
    """
    from xfbench.rendering import formats

    document = _describe_workload(name)
    if as_json:
        print(json.dumps(document))
        return
    keys = (
        "name",
        "input_shape",
        "classes",
        "parameters",
        "forward_macs_per_image",
        "digest",
        "source",
    )
    solver = ", ".join(f"{key} {value}" for key, value in document["solver"].items() if value)
    facts = {key: document[key] for key in keys} | {"solver": solver}
    print(formats.render_facts(facts, 24, terminal_width()), end="\n\n")
    rows = [
        (
            layer["name"],
            layer["type"],
            ", ".join(layer["inputs"]),
            "×".join(map(str, layer["output_shape"])),
            ", ".join(
                f"{parameter} {'×'.join(map(str, shape))}"
                for parameter, shape in layer["parameters"].items()
            ),
        )
        for layer in document["layers"]
    ]
    headers = ("layer", "type", "reads", "output", "parameters")
    print(formats.render_listing(headers, rows, terminal_width(), ("reads",)))


@app.command()
def export(
    name: _NameArgument,
    format: Annotated[str, typer.Option(help="Output format: caffe (prototxt) or json.")] = "caffe",
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Images per update (default: the published batch size).", show_default=False
        ),
    ] = None,
) -> None:
    """Export a workload's network to standard output, in a format for another tool.

    \b
        xfbench workload export alexnet --format caffe > alexnet.prototxt
    """
    from xfbench.adapters.caffe import prototxt
    from xfbench.base import errors

    workload = _load_workload(name)
    if format == "json":
        print(json.dumps(workload.to_json(), indent=1))
    elif format == "caffe":
        print(prototxt.train_val(workload, batch_size or workload.batch_size), end="")
    else:
        raise errors.unknown_name_error("format", format, ("caffe", "json"))


def _load_workload(name: str) -> Any:
    from xfbench.base import errors
    from xfbench.workloads import workloads

    workload_by_name = workloads()
    if name not in workload_by_name:
        raise errors.unknown_name_error("workload", name, workload_by_name)
    return workload_by_name[name]


def _describe_workload(name: str) -> dict[str, Any]:
    from xfbench.model import facts

    return facts.describe_workload(_load_workload(name))
