"""`xfbench data`: data sets in a form of our own, from format to format, checked and listed."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import JsonOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xfbench.data.sources import Source

app = typer.Typer(no_args_is_help=True, help="Data sets: prepare, convert, check, list.")

FormatOption = Annotated[
    str, typer.Option("--format", help="raw, folder, tfrecord, lmdb, recordio.", show_default=True)
]
SizeOption = Annotated[
    str | None,
    typer.Option(help="Of every image, in pixels: 256 or HEIGHTxWIDTH.", show_default=False),
]
FitOption = Annotated[
    str, typer.Option(help="squash: all of it; crop: scale the shorter side, cut the middle out.")
]
EncodeOption = Annotated[
    str | None,
    typer.Option(
        help="pixels, png, jpeg:QUALITY: decode and encode anew (default: files stay as they are).",
        show_default=False,
    ),
]

NameOption = Annotated[
    str | None,
    typer.Option("--as", help="What to call it (default: its kind, or its folder's name)."),
]


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="digits, mnist, cifar10, imagenet or folder.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="Where its published files are.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help="The folder to make (default: $XFBENCH_DATA/NAME-FORMAT).", show_default=False
        ),
    ] = None,
    format: FormatOption = "raw",
    size: SizeOption = None,
    fit: FitOption = "squash",
    encode: EncodeOption = None,
    classes: Annotated[
        int | None, typer.Option(min=2, help="Of ImageNet, only the first so many classes.")
    ] = None,
    set_name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a data set that you have into a form that every framework is fed from.

    Nothing is downloaded. An interrupted run goes on where it was when it is started again.

    \b
    xfbench data prepare mnist --from ~/mnist
    xfbench data prepare imagenet --from /scratch/ilsvrc2012 --classes 100 --size 256
    xfbench data prepare folder --from ~/pictures --as birds --size 256 --fit crop --format lmdb
    xfbench run --workload lenet --data mnist
    """
    from xfbench.base import errors
    from xfbench.data import sources

    if name not in ("digits", *sources.PUBLISHED):
        raise errors.unknown("data set", name, ["digits", *sources.PUBLISHED])
    if source is None and name != "digits":
        raise errors.UsageError(f"{name}: say where its files are by --from: nothing is downloaded")
    if classes and name != "imagenet":
        raise errors.UsageError("--classes is for imagenet")
    settings = _parse_settings(format, size, fit, encode)
    with _report_data_errors():
        if source is None or name == "digits":
            data_source = sources.digits()
        elif classes:
            data_source = sources.imagenet(source, classes)
        else:
            data_source = sources.PUBLISHED[name](source)
        _make_data_set(_rename_source(data_source, set_name), to, format, settings, as_json)


@app.command()
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM", help="A data set's folder, or FORMAT:FOLDER of other tools."
        ),
    ],
    to: Annotated[Path, typer.Argument(help="The folder to make.")],
    format: FormatOption = "raw",
    size: SizeOption = None,
    fit: FitOption = "squash",
    encode: EncodeOption = None,
    set_name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """The same samples in another format, in the same order.

    What other tools wrote has no manifest: name its format, as in tfrecord:DIR. Class folders of
    theirs have no order, and are mixed in a fixed one.

    \b
    xfbench data convert data/mnist-raw data/mnist-lmdb --format lmdb
    xfbench data convert tfrecord:/scratch/flowers data/flowers --size 256
    xfbench data check data/mnist-raw data/mnist-lmdb
    """
    from xfbench.data import sources

    settings = _parse_settings(format, size, fit, encode)
    with _report_data_errors():
        _make_data_set(
            _rename_source(sources.existing(source), set_name), to, format, settings, as_json
        )


@app.command()
def check(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Data sets.")],
    as_json: JsonOption = False,
) -> None:
    """Whether data sets are whole, and give the same samples in the same order.

    Every image is read, decoded and compared by its digest.

    \b
    xfbench data check data/mnist-raw data/mnist-tfrecord data/mnist-lmdb
    """
    from tabulate import tabulate

    from xfbench.data import checking

    with _report_data_errors(), _open_progress() as report:
        checked_sets = checking.check(folders, report)
    document = checking.document(checked_sets)
    if as_json:
        print(json.dumps(document))
    else:
        rows = [
            [
                checked_set.folder,
                checked_set.format,
                checked_set.samples,
                checked_set.stream_digest[7:19],
                "–"
                if checked_set.largest_pixel_difference is None
                else checked_set.largest_pixel_difference,
                checked_set.defect or "",
            ]
            for checked_set in checked_sets
        ]
        headers = ["data set", "format", "samples", "stream", "largest difference", "defect"]
        print(tabulate(rows, headers, disable_numparse=True))
        if len(checked_sets) > 1:
            print("equal" if document["equal"] else "different")
    if not document["equal"]:
        raise typer.Exit(1)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """The data sets that are prepared: what `run --data NAME` can be.

    \b
    xfbench data list
    """
    from tabulate import tabulate

    from xfbench.data import sets
    from xfbench.worker.input import DIGITS

    prepared_sets = sets.prepared()
    if as_json:
        print(json.dumps({"data": [prepared_set.document() for prepared_set in prepared_sets]}))
        return
    rows = [
        [
            prepared_set.folder.name,
            prepared_set.manifest.name,
            prepared_set.manifest.format,
            _format_counts(
                {name: split.samples for name, split in prepared_set.manifest.splits.items()}
            ),
            "×".join(map(str, prepared_set.manifest.shape))
            if prepared_set.manifest.shape
            else "various",
            prepared_set.manifest.digest[7:19],
        ]
        for prepared_set in prepared_sets
    ]
    rows.insert(0, ["digits", "digits", "–", _format_counts(DIGITS), "1×8×8", "comes with xfbench"])
    print(
        tabulate(
            rows, ["--data", "name", "format", "samples", "shape", "digest"], disable_numparse=True
        )
    )


def _format_counts(samples: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {split}" for split, count in samples.items())


def _rename_source(source: Source, name: str | None) -> Source:
    """The source under the name that somebody chose. Raises UsageError for what is none."""
    from xfbench.base import errors

    if name is None:
        return source
    if not name or set(name) & set("/,\\\n\t "):
        raise errors.UsageError(f"--as {name!r}: a name has no blanks, commas or slashes")
    return replace(source, name=name)


def _parse_settings(
    format_name: str, size: str | None, fit: str, encode: str | None
) -> dict[str, Any]:
    """What is to be done to images, before any is looked for. Raises UsageError."""
    from xfbench.base import errors
    from xfbench.data import preparing
    from xfbench.worker.prepared import FORMATS

    for kind, value, choices in (
        ("format", format_name, FORMATS),
        ("fit", fit, ("squash", "crop")),
    ):
        if value not in choices:
            raise errors.unknown(kind, value, choices)
    return {"size": preparing.size(size), "fit": fit, "encoding": preparing.encoding(encode)}


def _make_data_set(
    source: Source, to: Path | None, format_name: str, settings: dict[str, Any], as_json: bool
) -> None:
    from xfbench.base import paths
    from xfbench.data import writing
    from xfbench.data.manifest import Preprocessing

    preprocessing = Preprocessing(
        channels=source.channels, shuffle=0 if source.by_class else None, **settings
    )
    target = (to or paths.data() / f"{source.name}-{format_name}").absolute()
    with _open_progress() as report:
        manifest = writing.make(source, target, format_name, preprocessing, report)  # type: ignore[arg-type]
    if as_json:
        document = manifest.model_dump(mode="json", by_alias=True)
        print(json.dumps({"folder": str(target), **document}))
        return
    counts = _format_counts({name: split.samples for name, split in manifest.splits.items()})
    print(f"{target}: {counts} images, {len(manifest.classes)} classes, {manifest.digest[7:19]}")
    print(f"use it: xfbench run --data {target if to else target.name}")
    if rotated_count := sum(split.turned for split in manifest.splits.values()):
        say(
            f"{rotated_count} JPEG files ask to be shown turned (EXIF), and readers differ: ours leave "
            "them as they are stored, and with --size or --encode all do (docs/data.md)"
        )


@contextmanager
def _report_data_errors() -> Iterator[None]:
    """What is wrong with a data set or its disk, as an error of the command line."""
    from xfbench.base.errors import UsageError
    from xfbench.worker.formats import Damaged

    try:
        yield
    except Damaged as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(
            f"{error.filename or 'the disk'}: {error.strerror}: what is made so far has no final "
            "name; start it again to go on"
        ) from error


@contextmanager
def _open_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal; elsewhere a line for each tenth."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if console.is_terminal:
        with Progress(console=console, transient=True) as bars:
            tasks: dict[str, Any] = {}

            def update_bar(name: str, done: int, total: int) -> None:
                if name not in tasks:
                    tasks[name] = bars.add_task(name, total=total)
                bars.update(tasks[name], completed=done)

            yield update_bar
        return
    printed_tenths: dict[str, int] = {}

    def print_tenth(name: str, done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if tenth > printed_tenths.get(name, 0):
            printed_tenths[name] = tenth
            say(f"{name}: {done} of {total}")

    yield print_tenth
