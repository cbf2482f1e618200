"""`xfbench workload`: which networks there are, one in full, and one for another tool."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from xfbench.cli.options import Json

app = typer.Typer(
    name="workload",
    help="The networks: list, show, export.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Name = Annotated[str, typer.Argument(help="A workload's name.", show_default=False)]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Every workload, its input, size and work."""
    from tabulate import tabulate

    from xfbench.workloads import workloads

    known = workloads()
    if as_json:
        print(json.dumps({"workloads": list(known)}))
        return
    rows = [
        (
            name,
            "×".join(map(str, found.network.input_shape)),
            f"{found.network.learned_count:,}",
            f"{found.network.forward_macs:,}",
            found.batch_size,
            found.data,
        )
        for name, found in known.items()
    ]
    headers = ("name", "input", "parameters", "forward MACs/image", "batch", "data")
    print(tabulate(rows, headers, disable_numparse=True))


@app.command()
def show(name: _Name, as_json: Json = False) -> None:
    """One network: every layer, its output and parameters.

    \b
    xfbench workload show googlenet
    """
    from tabulate import tabulate

    document = _document(name)
    if as_json:
        print(json.dumps(document))
        return
    head = ("name", "input_shape", "classes", "parameters", "forward_macs_per_image", "digest")
    for key in head:
        print(f"{key:24}{document[key]}")
    solver = ", ".join(f"{key} {value}" for key, value in document["solver"].items() if value)
    print(f"{'solver':24}{solver}\n")
    rows = [
        (
            layer["name"],
            layer["type"],
            ", ".join(layer["inputs"]),
            "×".join(map(str, layer["output_shape"])),
            ", ".join(f"{k} {'×'.join(map(str, v))}" for k, v in layer["parameters"].items()),
        )
        for layer in document["layers"]
    ]
    print(tabulate(rows, ("layer", "type", "reads", "output", "parameters"), disable_numparse=True))


@app.command()
def export(
    name: _Name,
    format: Annotated[str, typer.Option(help="caffe (prototxt) or json.")] = "caffe",
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Images per update (default: the published).", show_default=False),
    ] = None,
) -> None:
    """The network for another tool, on standard output.

    \b
    xfbench workload export alexnet --format caffe > alexnet.prototxt
    """
    from xfbench.adapters.caffe import prototxt
    from xfbench.base import errors

    workload = _load(name)
    if format == "json":
        print(json.dumps(workload.to_json(), indent=1))
    elif format == "caffe":
        print(prototxt.train_val(workload, batch_size or workload.batch_size), end="")
    else:
        raise errors.unknown_name_error("format", format, ("caffe", "json"))


def _load(name: str) -> Any:
    from xfbench.base import errors
    from xfbench.workloads import workloads

    known = workloads()
    if name not in known:
        raise errors.unknown_name_error("workload", name, known)
    return known[name]


def _document(name: str) -> dict[str, Any]:
    from xfbench.records import facts

    return facts.describe_workload(_load(name))
