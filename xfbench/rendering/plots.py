"""The figures of the report as files for papers, drawn by matplotlib (the extra `figures`)."""

from __future__ import annotations

import itertools
import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xfbench.base import processes
from xfbench.base.errors import UsageError
from xfbench.base.terminal_text import make_legible
from xfbench.rendering.formats import escape_latex, make_latex_caption, make_latex_label
from xfbench.rendering.report import svg
from xfbench.rendering.report.figures import Bar, Figure, Mark, Point

FORMATS = ("pdf", "svg", "png", "pgf")
_LATEX_PROGRAMS = ("xelatex", "lualatex")
# What matplotlib and a paper with its figures load. Debian's texlive-luatex has none of them.
_LATEX_FILES = ("pgf.sty", "fontspec.sty", "underscore.sty")
_LATEX_FORMATS = ("pdf", "pgf", "png")  # the preferred ones first
_LATEX_FIGURES_PREAMBLE = (
    "% In the preamble: \\usepackage{graphicx}; for files in pgf: \\usepackage{fontspec,pgf}"
)
_LATEX_FIGURE = re.compile(
    r"\\begin\{figure\}.*?^\\label\{(.*?)\}$.*?\\end\{figure\}", re.DOTALL | re.MULTILINE
)
_WIDTH_INCHES = 3.5  # a column of a paper
_MARKERS = "osDv^P"
_OPEN_MARKERS = "Dso^"  # of published numbers, hollow as in `svg.py`
_MARK_COLOUR = "#555555"
_DASHES = ("-", "--", ":", "-.")
_NO_DATES: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None},
    "png": {"Software": None},
}


def choose_formats(names: Sequence[str] | None) -> list[str]:
    """Return the formats to write. By default all that can be written here.

    Raises UsageError if a format is unknown, or needs a program that is not installed.
    """
    if names is None:
        return [name for name in FORMATS if name != "pgf" or _find_latex_program()]
    for name in names:
        if name not in FORMATS:
            raise UsageError(f"--figure-format {name}: choose from {', '.join(FORMATS)}")
        if name == "pgf" and not _find_latex_program():
            raise UsageError(
                f"--figure-format pgf needs {' or '.join(_LATEX_PROGRAMS)}, and the LaTeX files "
                f"{', '.join(_LATEX_FILES)}: install the Debian package texlive-xetex"
            )
    return [*names]


def _find_latex_program() -> str | None:
    """Return the LaTeX program for PGF figures. None: it, or a file that it needs, is missing."""
    program = next(filter(shutil.which, _LATEX_PROGRAMS), None)
    if program is None:
        return None
    try:
        processes.output(["kpsewhich", *_LATEX_FILES], timeout=60)
    except processes.CommandError:
        return None
    return program


def create_folder_and_check_matplotlib(folder: Path) -> None:
    """Create the folder for figures. Raises UsageError if it or matplotlib cannot be used."""
    if find_spec("matplotlib") is None:
        raise UsageError("--figures needs matplotlib: python -m pip install matplotlib")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"--figures {folder}: {error.strerror}") from error


def write_figures(
    named_figures: Iterable[tuple[str, str, Figure]], folder: Path, formats: Sequence[str]
) -> list[Path]:
    """Write each figure in each format to an existing folder, and their captions. Return the files.

    `named_figures` has triples of a name, a heading and a figure. The name becomes the name of the
    figure's files; further figures of the same name are numbered. The file `captions.txt` has the
    heading, the description and the note of each figure, also of those written earlier. If a
    format is one that LaTeX reads, `captions.tex` has them as figures to paste into a paper.
    """
    import matplotlib

    matplotlib.use("agg")
    if "pgf" in formats:
        matplotlib.rcParams["pgf.texsystem"] = _find_latex_program()
    matplotlib.rcParams.update(
        {"font.size": 8, "svg.hashsalt": "xfbench", "svg.fonttype": "none", "pdf.fonttype": 42}
    )
    files: list[Path] = []
    captions: dict[str, str] = {}
    for figure_name, heading, figure in named_figures:
        if not figure.lines and not figure.bars:
            continue
        base = _to_file_name(figure_name)
        numbered = (f"{base}-{number}" for number in itertools.count(2))
        name = next(each for each in itertools.chain([base], numbered) if each not in captions)
        captions[name] = " ".join(filter(None, (f"{heading}.", figure.description, figure.note)))
        for suffix in formats:
            drawn = _draw(figure, is_latex=suffix == "pgf")
            file = folder / f"{name}.{suffix}"
            options = {"metadata": _NO_DATES[suffix]} if suffix in _NO_DATES else {}
            drawn.savefig(file, dpi=300, bbox_inches="tight", **options)
            files.append(file)
    if captions:
        _write_captions(folder / "captions.txt", captions)
        latex_format = next((each for each in _LATEX_FORMATS if each in formats), None)
        if latex_format:
            _write_latex_figures(folder / "captions.tex", captions, latex_format)
    return files


def _write_captions(file: Path, captions: Mapping[str, str]) -> None:
    """Write a line for each caption. Lines about other figures in the file are kept."""
    old_lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    lines = dict(line.split(": ", 1) for line in old_lines if ": " in line)
    lines |= {name: make_legible(text, 10_000) for name, text in captions.items()}
    text = "".join(f"{name}: {caption}\n" for name, caption in lines.items())
    file.write_text(text, encoding="utf-8")


def _write_latex_figures(file: Path, captions: Mapping[str, str], suffix: str) -> None:
    """Write an environment of LaTeX for each figure. Those of other figures in the file are kept.

    `suffix` is the format of the figures. Their paths are relative to the folder above.
    """
    old_text = file.read_text(encoding="utf-8") if file.is_file() else ""
    figures = {match[1]: match[0] for match in _LATEX_FIGURE.finditer(old_text)}
    for name, caption in captions.items():
        path = f"{file.parent.resolve().name}/{name}.{suffix}"
        label = make_latex_label("fig", name)
        lines = [
            "\\begin{figure}",
            "\\centering",
            f"\\input{{{path}}}"
            if suffix == "pgf"
            else f"\\includegraphics[width=\\linewidth]{{{path}}}",
            f"\\caption{{{make_latex_caption(caption)}}}",
            f"\\label{{{label}}}",
            "\\end{figure}",
        ]
        figures[label] = "\n".join(lines)
    text = "\n\n".join([_LATEX_FIGURES_PREAMBLE, *figures.values()])
    file.write_text(f"{text}\n", encoding="utf-8")


def _to_file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:120] or "figure"


def _draw(figure: Figure, *, is_latex: bool) -> Any:
    from matplotlib.figure import Figure as Plot

    def text(name: str) -> str:
        """Return a text from a record as a label that neither LaTeX nor matplotlib interprets."""
        legible = make_legible(name)
        if is_latex:
            # matplotlib would replace "\\$" by "$".
            return escape_latex(legible).replace(r"\$", r"\textdollar{}")
        return legible.replace("$", r"\$")

    figure = replace(
        figure,
        lines=tuple(replace(line, name=text(line.name)) for line in figure.lines),
        bars=tuple(replace(bar, name=text(bar.name)) for bar in figure.bars),
        marks=tuple(replace(mark, name=text(mark.name)) for mark in figure.marks),
    )

    height = 2.4 if figure.lines else 0.6 + 0.42 * len(figure.bars)
    plot = Plot(figsize=(_WIDTH_INCHES, height))
    axes = plot.subplots()
    if figure.lines:
        _draw_lines(axes, figure)
    else:
        _draw_bars(axes, figure.bars, figure.bar_end)
        axes.set_xlabel(figure.y)
        if figure.limit:
            axes.axvline(figure.limit[0], color="#b3204f", linestyle="--", linewidth=1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y" if figure.lines else "x", linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
    if figure.percent:
        (axes.yaxis if figure.lines else axes.xaxis).set_major_formatter("{x:.0%}")
    if figure.from_zero and figure.lines:
        axes.set_ylim(0)
    return plot


def _draw_lines(axes: Any, figure: Figure) -> None:
    number = -1
    for line in figure.lines:
        number += not line.ideal
        axes.errorbar(
            [point.x for point in line.points],
            [point.y for point in line.points],
            None if line.ideal else _error_lengths(line.points),
            color=svg.colour(line.name, number),
            linestyle=":" if line.ideal else _DASHES[number % len(_DASHES)],
            marker="" if line.ideal else _MARKERS[number % len(_MARKERS)],
            markersize=3,
            linewidth=1,
            capsize=2,
            label=None if line.ideal else line.name.lstrip("_"),
        )
    for number, mark in enumerate(figure.marks):
        _draw_mark(axes, mark, _OPEN_MARKERS[number % len(_OPEN_MARKERS)])
    if figure.at:
        if figure.is_x_logarithmic:
            axes.set_xscale("log", base=2)
            axes.minorticks_off()
        axes.set_xticks(figure.ticks, [f"{tick:g}" for tick in figure.ticks])
    axes.set_xlabel(figure.x)
    axes.set_ylabel(figure.y)
    axes.legend(frameon=False, fontsize=6, loc="upper left", bbox_to_anchor=(0, -0.22))


def _draw_mark(axes: Any, mark: Mark, marker: str) -> None:
    """Draw a published or imported number, or both ends of its range."""
    candidates = [mark.low, mark.high] if mark.y is None else [mark.y]
    values = [value for value in candidates if value is not None]
    if mark.low is not None and mark.high is not None:
        axes.vlines(mark.x, mark.low, mark.high, colors=_MARK_COLOUR, linewidth=1)
    axes.plot(
        [mark.x] * len(values),
        values,
        color=_MARK_COLOUR,
        linestyle="",
        marker=marker,
        markersize=4,
        markerfacecolor="none",
        label=mark.name.lstrip("_"),
    )


def _draw_bars(axes: Any, bars: Sequence[Bar], end: float) -> None:
    """Draw horizontal bars on an axis that ends at `end`. Longer intervals end in an arrow."""
    places = range(len(bars), 0, -1)
    axes.barh(
        places,
        [bar.value for bar in bars],
        height=0.5,
        xerr=_error_lengths([Point(0, bar.value, bar.low, bar.high) for bar in bars]),
        color=[svg.colour(bar.name) for bar in bars],
        alpha=0.7,
        error_kw={"linewidth": 1, "capsize": 2},
    )
    axes.set_yticks(places, [bar.name for bar in bars])
    axes.set_xlim(0, 1.03 * end)
    for place, bar in zip(places, bars, strict=True):
        if bar.high is not None and bar.high > 1.03 * end:
            axes.plot(1.03 * end, place, marker=">", markersize=4, color="black", clip_on=False)


def _error_lengths(points: Sequence[Point]) -> list[list[float]]:
    """Return how far the ends of the intervals are below and above the values."""
    return [
        [math.nan if point.low is None else max(0.0, point.y - point.low) for point in points],
        [math.nan if point.high is None else max(0.0, point.high - point.y) for point in points],
    ]
