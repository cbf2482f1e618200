"""`xfbench data`: prepare, convert, check and list data sets."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xfbench.base.terminal_text import make_legible, say, terminal_width
from xfbench.base.terminal_text import print_legibly as print
from xfbench.cli.options import JsonOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xfbench.datasets.sources import Source

app = typer.Typer(no_args_is_help=True, help="Data sets: prepare, convert, check, list.")

FormatOption = Annotated[
    str,
    typer.Option(
        "--format", help="Format: raw, folder, tfrecord, lmdb or recordio.", show_default=True
    ),
]
SizeOption = Annotated[
    str | None,
    typer.Option(
        help="Size of every image in pixels: HEIGHTxWIDTH, or one number such as 256 for both "
        "(default: unchanged).",
        show_default=False,
    ),
]
FitOption = Annotated[
    str,
    typer.Option(
        help="How to fit images to --size. squash: scale height and width separately; crop: keep "
        "the proportions and cut out the center."
    ),
]
EncodeOption = Annotated[
    str | None,
    typer.Option(
        help="Encoding: pixels, png or jpeg:QUALITY (default: keep the files as they are).",
        show_default=False,
    ),
]

NameOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Name of the data set (default: the name of its source, such as mnist, or of its "
        "folder).",
    ),
]


SkipOption = Annotated[
    bool,
    typer.Option(
        "--skip-damaged",
        help="Leave out images that cannot be read, and list them in the manifest.",
    ),
]

LabelOffsetOption = Annotated[
    int,
    typer.Option(
        min=0, max=10**6, help="Number to subtract from labels, such as 1 if they begin at 1."
    ),
]

ClassesFileOption = Annotated[
    Path | None,
    typer.Option(
        help="File with the names of the classes, one in a line, in the order of their labels."
    ),
]

PatternOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pattern",
        metavar="GLOB",
        help="TFRecord or RecordIO files to read, relative to FROM, such as 'train-*-of-*' "
        "(default: by their usual names). Repeat the option for several patterns.",
    ),
]

FeaturesOption = Annotated[
    str | None,
    typer.Option(
        metavar="image=NAME,label=NAME",
        help="TFRecord features with the image and the label, or one of them (default: by "
        "their usual names).",
    ),
]


@app.command()
def prepare(
    name: Annotated[
        str, typer.Argument(help="Data set: digits, mnist, cifar10, imagenet or folder.")
    ],
    source: Annotated[
        Path | None, typer.Option("--from", help="Folder with the published files.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder to create (default: $XFBENCH_DATA/NAME-FORMAT).", show_default=False
        ),
    ] = None,
    format: FormatOption = "raw",
    size: SizeOption = None,
    fit: FitOption = "squash",
    encode: EncodeOption = None,
    classes: Annotated[
        int | None,
        typer.Option(
            min=2, help="Number of ImageNet classes to use, counted from the first (default: all)."
        ),
    ] = None,
    set_name: NameOption = None,
    skip_damaged: SkipOption = False,
    as_json: JsonOption = False,
) -> None:
    """Convert a data set that you have into a format that every framework can read.

    Nothing is downloaded. If the command is interrupted, run it again to continue.

    \b
        xfbench data prepare mnist --from ~/mnist
        xfbench data prepare imagenet --from /scratch/ilsvrc2012 --classes 100 --size 256
        xfbench data prepare folder --from ~/pictures --as birds --size 256 --fit crop --format lmdb
        xfbench run --workload lenet --data mnist
    """
    from xfbench.base import errors
    from xfbench.datasets import sources

    if name not in ("digits", *sources.PUBLISHED):
        raise errors.unknown_name_error("data set", name, ["digits", *sources.PUBLISHED])
    if source is None and name != "digits":
        raise errors.UsageError(
            f"{name} needs --from FOLDER with the published files: xfbench downloads nothing"
        )
    if classes and name != "imagenet":
        raise errors.UsageError("--classes works only with imagenet")
    if source is not None and name == "digits":
        raise errors.UsageError("--from has no effect here: digits come with xfbench")
    settings = _parse_preprocessing_settings(format, size, fit, encode)
    with _raise_data_errors_as_usage_errors():
        if source is None or name == "digits":
            data_source = sources.open_bundled_digits()
        else:
            data_source = sources.open_published(name, source, classes)
        _make_data_set(
            _rename_source(data_source, set_name), to, format, settings, skip_damaged, as_json
        )


@app.command()
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM",
            help="Data set to convert: the folder of a prepared data set or of class folders, or "
            "FORMAT:FOLDER for files that another tool wrote.",
        ),
    ],
    to: Annotated[Path, typer.Argument(help="Folder to create.")],
    format: FormatOption = "raw",
    size: SizeOption = None,
    fit: FitOption = "squash",
    encode: EncodeOption = None,
    set_name: NameOption = None,
    label_offset: LabelOffsetOption = 0,
    classes_file: ClassesFileOption = None,
    patterns: PatternOption = None,
    features: FeaturesOption = None,
    skip_damaged: SkipOption = False,
    as_json: JsonOption = False,
) -> None:
    """Convert a data set to another format, size or encoding.

    The order of the samples stays the same. Exception: for folder:DIR, samples are shuffled with a
    fixed seed, because class folders define no order. FORMAT:DIR names
    the format of another tool's files, such as tfrecord:DIR.

    \b
        xfbench data convert data/mnist-raw data/mnist-lmdb --format lmdb
        xfbench data convert tfrecord:/scratch/flowers data/flowers --size 256
        xfbench data check data/mnist-raw data/mnist-lmdb
    """
    from xfbench.datasets import foreign, sources

    settings = _parse_preprocessing_settings(format, size, fit, encode)
    selection = foreign.parse_selection(patterns or [], features)
    with _raise_data_errors_as_usage_errors():
        data_source = sources.open_data_set_as_source(source, selection)
        if label_offset:
            data_source = sources.shift_labels(data_source, label_offset)
        if classes_file:
            data_source = sources.name_classes(data_source, classes_file)
        _make_data_set(
            _rename_source(data_source, set_name),
            to,
            format,
            settings,
            skip_damaged,
            as_json,
        )


@app.command()
def check(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of data sets.")],
    as_json: JsonOption = False,
) -> None:
    """Check that data sets are complete and have equal samples in the same order.

    Every image is read and decoded. Its digest is compared with the list of its data set.

    \b
        xfbench data check data/mnist-raw data/mnist-tfrecord data/mnist-lmdb
    """
    from xfbench.datasets import checking
    from xfbench.rendering import formats

    with _raise_data_errors_as_usage_errors(), _open_progress() as report:
        checked_sets = checking.compare_data_sets(folders, report)
    document = checking.build_comparison_document(checked_sets)
    if as_json:
        print(json.dumps(document))
    else:
        rows = [
            [
                checked_set.folder,
                checked_set.format,
                str(checked_set.samples),
                checked_set.stream_digest[7:19],
                "–"
                if checked_set.largest_pixel_difference is None
                else str(checked_set.largest_pixel_difference),
                checked_set.defect or "",
            ]
            for checked_set in checked_sets
        ]
        headers = ["data set", "format", "samples", "stream", "largest difference", "defect"]
        print(formats.render_listing(headers, rows, terminal_width(), ("stream",)))
        if len(checked_sets) > 1:
            print("equal" if document["equal"] else "different")
    if not document["equal"]:
        raise typer.Exit(1)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the prepared data sets and the names that `run --data` accepts.

    \b
        xfbench data list
    """
    from xfbench.datasets import sets
    from xfbench.rendering import formats
    from xfbench.worker.input import DIGITS

    prepared_sets = sets.list_prepared()
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
            prepared_set.manifest.samples_digest[7:19],
        ]
        for prepared_set in prepared_sets
    ]
    rows.insert(0, ["digits", "digits", "–", _format_counts(DIGITS), "1×8×8", "comes with xfbench"])
    headers = ["--data", "name", "format", "samples", "shape", "digest"]
    print(formats.render_listing(headers, rows, terminal_width(), ("digest", "shape")))


def _format_counts(samples: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {split}" for split, count in samples.items())


def _rename_source(source: Source, name: str | None) -> Source:
    """Return `source` with the new name `name`. If `name` is None, return `source` unchanged.

    `name` is the value of --as. Raises UsageError if it is invalid.
    """
    from xfbench.base import errors

    if name is None:
        if any("\ud800" <= letter <= "\udfff" for letter in source.name):
            raise errors.UsageError("the name of the folder is not UTF-8: choose a name with --as")
        return source
    if not name or set(name) & set("/,\\\n\t "):
        raise errors.UsageError(f"--as {name!r}: a name must not have spaces, commas or slashes")
    return replace(source, name=name)


def _parse_preprocessing_settings(
    format_name: str, size: str | None, fit: str, encode: str | None
) -> dict[str, Any]:
    """Return the values of --size, --fit and --encode, as "size", "fit" and "encoding".

    Raises UsageError if an option is invalid or the format `format_name` is unknown.
    """
    from xfbench.base import errors
    from xfbench.datasets import preparing
    from xfbench.worker.prepared import FORMATS

    for kind, value, choices in (
        ("format", format_name, FORMATS),
        ("fit", fit, ("squash", "crop")),
    ):
        if value not in choices:
            raise errors.unknown_name_error(kind, value, choices)
    if fit == "crop" and size is None:
        raise errors.UsageError("--fit crop has no effect here: it needs --size")
    return {
        "size": preparing.parse_height_and_width(size),
        "fit": fit,
        "encoding": preparing.parse_encoding(encode),
    }


def _make_data_set(
    source: Source,
    data_set_folder: Path | None,
    format_name: str,
    settings: dict[str, Any],
    skip_damaged: bool,
    as_json: bool,
) -> None:
    from xfbench.base import paths, private_names
    from xfbench.datasets import writing
    from xfbench.datasets.manifest import Preprocessing

    preprocessing = Preprocessing(
        channels=source.channels, shuffle=0 if source.by_class else None, **settings
    )
    for remark in source.remarks:
        say(remark)
    if private_names.mask_known_names(source.name, private_names.known_names()) != source.name:
        say(
            f"the name {source.name} names you, and records will contain it: choose another one "
            "with --as"
        )
    target = (data_set_folder or paths.data() / f"{source.name}-{format_name}").absolute()
    with _open_progress() as report:
        manifest = writing.make_data_set(
            source,
            target,
            format_name,  # type: ignore[arg-type]
            preprocessing,
            report,
            skip_damaged=skip_damaged,
            tell=say,
        )
    if as_json:
        document = manifest.model_dump(mode="json", by_alias=True)
        print(json.dumps({"folder": str(target), **document}))
        return
    counts = _format_counts({name: split.samples for name, split in manifest.splits.items()})
    print(
        f"{target}: {counts} images, {len(manifest.classes)} classes, "
        f"{manifest.samples_digest[7:19]}"
    )
    print(f"use it with: xfbench run --data {target if data_set_folder else target.name}")
    if rotated_count := sum(split.turned for split in manifest.splits.values()):
        say(
            f"{rotated_count} JPEG files have an EXIF rotation, which some readers apply and "
            "xfbench ignores: use --size or --encode to store images without it (docs/data.md)"
        )


@contextmanager
def _raise_data_errors_as_usage_errors() -> Iterator[None]:
    """Raise UsageError instead of `Damaged` and OSError."""
    from xfbench.base.errors import UsageError
    from xfbench.worker.formats import Damaged

    try:
        yield
    except Damaged as error:
        raise UsageError(str(error)) from error
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(
            f"{error.filename or 'the disk'}: {error.strerror}: the data set is incomplete: "
            "run the command again to continue"
        ) from error


@contextmanager
def _open_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows progress. It takes a name, the finished items and all items.

    On a terminal, it shows a bar. Elsewhere, it prints a line for every 10 %.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    console = Console(stderr=True)
    if console.is_terminal:
        with Progress(console=console, transient=True) as bars:
            tasks: dict[str, Any] = {}

            def update_bar(name: str, done: int, total: int) -> None:
                if name not in tasks:
                    tasks[name] = bars.add_task(escape(make_legible(name)), total=total)
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
