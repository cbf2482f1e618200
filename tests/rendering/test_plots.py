"""Figures for papers: files of each format, and what is missing for them."""

import subprocess
from pathlib import Path

import pytest

from tests import debian
from xfbench.base.errors import UsageError
from xfbench.rendering import plots
from xfbench.rendering.report.content import build_report
from xfbench.rendering.report.figures import Bar, Figure, Line, Mark, Point
from xfbench.store.results_folder import Store

ROOT = Path(__file__).parents[2]
STARTS = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}


def build_boards(record, kernels):
    """Return the boards of launches with these kernels and several numbers of threads."""
    records = [
        record(
            steps=(0.1 / threads + 0.001 * launch,) * 3,
            launch=launch,
            threads=threads,
            framework="torch",
            kernel=kernel,
        )
        for launch in range(1, 6)
        for threads in (1, 2, 4)
        for kernel in kernels
    ]
    return build_report(records, {}).boards


def name_figures(boards):
    """Return the figures of boards with names, as `write_figures` takes them."""
    return [
        (figure.title, board.table.title, figure) for board in boards for figure in board.figures
    ]


@pytest.fixture
def boards(record):
    """Boards with a figure of threads (lines) and one of kernels (bars)."""
    return build_boards(record, ("onednn", "native"))


def test_every_figure_is_written_in_each_format(boards, tmp_path):
    files = plots.write_figures(name_figures(boards), tmp_path, ["pdf", "svg", "png"])
    figures = sum(len(board.figures) for board in boards)
    assert len(files) == 3 * figures > 3 and len(set(files)) == len(files)
    for file in files:
        assert file.read_bytes().startswith(STARTS[file.suffix[1:]])


def test_figures_of_a_study_are_written_with_the_published_values(run_inline, tmp_path):
    archive = ROOT / "docs/laptop/kernels.tar.gz"
    outcome = run_inline(
        *("study", "report", "kernels", "--with", str(archive), "--results", "none"),
        *("--figures", "figures", "--figure-format", "svg"),
    )
    assert outcome.returncode == 0, outcome.stderr
    texts = [file.read_text() for file in tmp_path.glob("figures/kernels-*.svg")]
    assert any("published (" in text and "torch" in text for text in texts)


def test_published_numbers_are_hollow_markers_and_ranges(tmp_path):
    marks = (
        Mark("published (A)", "7", 2, 7.0, None, None),
        Mark("published (B)", "3 to 5", 4, None, 3.0, 5.0),
    )
    lines = (Line("torch", (Point(1, 1.0), Point(4, 4.0))),)
    figure = Figure("a title", "", "images/s", (), (), "threads", lines, marks=marks, at=(1, 2, 4))
    [axes] = plots._draw(figure, is_latex=False).axes
    drawn = {line.get_label(): line for line in axes.lines}
    for mark, values in zip(marks, ([7.0], [3.0, 5.0]), strict=True):
        line = drawn[mark.name]
        assert [*line.get_ydata()] == values and {*line.get_xdata()} == {mark.x}
        assert line.get_markerfacecolor() == "none" and line.get_linestyle() == "None"
    paths = [path for collection in axes.collections for path in collection.get_paths()]
    assert [[4.0, 3.0], [4.0, 5.0]] in [path.vertices.tolist() for path in paths]


def test_an_interval_that_is_far_longer_than_the_bars_ends_in_an_arrow():
    bars = (Bar("a", 2.0, 1.9, 2.1), Bar("b", 1.0, 0.1, 100.0))
    [axes] = plots._draw(Figure("", "", "times", (), (), bars=bars), is_latex=False).axes
    end = axes.get_xlim()[1]
    assert 2.1 < end < 5
    [arrow] = [line for line in axes.lines if line.get_marker() == ">"]
    assert [*arrow.get_xdata()] == [end] and [*arrow.get_ydata()] == [1]


def test_no_two_figures_have_one_file(tmp_path):
    lines = (Line("torch", (Point(1, 1.0),)),)
    figure = Figure("", "in words", "", (), (), "threads", lines, at=(1,), note="a note")
    names = ["Speed", "Speed", "Speed 2", "速度"]
    files = plots.write_figures([(name, "a heading", figure) for name in names], tmp_path, ["svg"])
    assert [file.name for file in files] == [
        *("speed.svg", "speed-2.svg", "speed-2-2.svg", "figure.svg")
    ]
    captions = (tmp_path / "captions.txt").read_text().splitlines()
    assert captions[1] == "speed-2: a heading. in words a note"


def test_a_paper_can_paste_the_figures_with_escaped_captions(tmp_path):
    lines = (Line("torch", (Point(1, 1.0),)),)
    figure = Figure("", "50 % of a_b", "", (), (), "threads", lines, at=(1,), note="a note")
    folder = tmp_path / "figures"
    folder.mkdir()
    for name, formats in (("Old", ["pdf"]), ("Speed", ["svg", "png"]), ("Speed", ["svg", "pdf"])):
        plots.write_figures([(name, "a & b", figure)], folder, formats)
    preamble, old, speed = (folder / "captions.tex").read_text().split("\n\n")
    assert "graphicx" in preamble and "{figures/old.pdf}" in old
    assert speed.splitlines() == [
        r"\begin{figure}",
        r"\centering",
        r"\includegraphics[width=\linewidth]{figures/speed.pdf}",
        r"\caption{a \& b. 50 \% of a\_b a note}",
        r"\label{fig:xfbench-speed}",
        r"\end{figure}",
    ]
    plots._write_latex_figures(folder / "captions.tex", {"speed": "x"}, "pgf")  # without LaTeX
    text = (folder / "captions.tex").read_text()
    assert r"\input{figures/speed.pgf}" in text and r"{figures/old.pdf}" in text


def test_figures_without_a_format_of_latex_have_captions_in_text_only(boards, tmp_path):
    plots.write_figures(name_figures(boards), tmp_path, ["svg"])
    assert (tmp_path / "captions.txt").is_file() and not (tmp_path / "captions.tex").exists()


def test_figures_without_an_output_file_leave_an_earlier_report(run_inline, record, tmp_path):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for threads in (1, 2):
        store.add(record(threads=threads), None)
    page = tmp_path / "report.html"
    page.write_text("an earlier report")
    arguments = ("report", "--figures", "figures", "--figure-format", "svg")
    outcome = run_inline(*arguments)
    assert outcome.returncode == 0 and "report.html" not in outcome.stdout, outcome.stderr
    assert [*tmp_path.glob("figures/*.svg")] and page.read_text() == "an earlier report"
    refused = run_inline(*arguments, "--open")
    assert refused.returncode == 2 and "--open with --figures needs --output" in refused.stderr
    both = run_inline(*arguments, "--output", "both.html")
    assert both.returncode == 0 and (tmp_path / "both.html").read_text().startswith("<!doctype")


@pytest.mark.parametrize("command", [("report",), ("study", "report", "kernels")])
def test_a_format_of_figures_without_a_folder_is_an_error(run_inline, command):
    outcome = run_inline(*command, "--figure-format", "pdf")
    assert outcome.returncode == 2 and "--figure-format needs --figures" in outcome.stderr


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((1, 2, 4), [1, 2, 4]),
        ((64, 128, 192, 208, 256, 4096), [64, 128, 256, 4096]),
        ((1, 95, 100), [1, 95]),  # the first of two that overlap
        ((3,), [3]),
        ((), []),
    ],
)
def test_labels_of_ticks_do_not_overlap(values, ticks):
    assert Figure("", "", "", (), (), at=values).ticks == ticks


def test_same_records_give_the_same_files(boards, tmp_path):
    contents = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        files = plots.write_figures(name_figures(boards), tmp_path / name, ["pdf", "svg"])
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]


def test_text_stays_text_and_has_the_names(boards, tmp_path):
    files = plots.write_figures(name_figures(boards), tmp_path, ["svg"])
    text = "".join(file.read_text() for file in files)
    assert "torch · onednn" in text and "images/s" in text


def test_pgf_without_latex_is_refused_with_the_package(run_inline, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = run_inline("report", "--figures", "figures", "--figure-format", "pdf,pgf")
    assert refused.returncode == 2
    assert "--figure-format pgf needs xelatex or lualatex" in refused.stderr
    assert "Debian package texlive-xetex" in refused.stderr
    assert not (tmp_path / "figures").exists()
    assert plots.choose_formats(None) == ["pdf", "svg", "png"]


def test_pgf_without_the_files_of_latex_is_refused(monkeypatch, tmp_path):
    """Debian's texlive-luatex has the program and not the packages of LaTeX."""
    for name, code in (("lualatex", "exit 0"), ("kpsewhich", "echo pgf.sty; exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{code}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"underscore\.sty.*texlive-xetex"):
        plots.choose_formats(["pgf"])


@pytest.fixture
def xelatex():
    """Debian's XeLaTeX."""
    if reason := debian.install_missing(["xelatex"], ["texlive-xetex"]):
        debian.skip_test(reason)
    return "xelatex"


@pytest.mark.deep
@pytest.mark.parametrize("suffix", ["pdf", "pgf"])
def test_xelatex_compiles_a_paper_with_every_figure(xelatex, record, tmp_path, suffix):
    """Also with names that have characters of LaTeX's own."""
    boards = build_boards(record, ("onednn", "a$b", r"a_b%c$d&e#f~g^h\i{j}"))
    assert plots.choose_formats(None) == ["pdf", "svg", "png", "pgf"]
    (tmp_path / "figures").mkdir()
    files = plots.write_figures(name_figures(boards), tmp_path / "figures", [suffix])
    assert len(files) > 1
    figures = (tmp_path / "figures/captions.tex").read_text()
    lines = [
        *(r"\documentclass{article}", r"\usepackage{graphicx}"),
        *(r"\usepackage{fontspec}", r"\usepackage{pgf}", r"\begin{document}"),
        figures.replace(r"\end{figure}", "\\end{figure}\n\\clearpage"),
        r"\end{document}",
    ]
    (tmp_path / "paper.tex").write_text("\n".join(lines))
    compiled = subprocess.run(
        [xelatex, "-halt-on-error", "-interaction=nonstopmode", "paper.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stdout
    assert "Missing character" not in (tmp_path / "paper.log").read_text()
    assert (tmp_path / "paper.pdf").read_bytes().startswith(STARTS["pdf"])
    assert f"({len(files)} pages" in compiled.stdout


def test_unknown_format_is_refused():
    with pytest.raises(UsageError, match="choose from pdf, svg, png, pgf"):
        plots.choose_formats(["gif"])
