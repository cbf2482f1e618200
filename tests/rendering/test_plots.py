"""Figures for papers: files of each format, and what is missing for them."""

import shutil

import pytest

from xfbench.base.errors import UsageError
from xfbench.rendering import plots
from xfbench.rendering.report.content import build_report

STARTS = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}


@pytest.fixture
def boards(record):
    """Boards with a figure of threads (lines) and one of kernels (bars)."""
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
        for kernel in ("onednn", "native")
    ]
    return build_report(records, {}).boards


def test_every_figure_is_written_in_each_format(boards, tmp_path):
    files = plots.write_figures(boards, tmp_path, ["pdf", "svg", "png"])
    figures = sum(len(board.figures) for board in boards)
    assert len(files) == 3 * figures > 3 and len(set(files)) == len(files)
    for file in files:
        assert file.read_bytes().startswith(STARTS[file.suffix[1:]])


def test_same_records_give_the_same_files(boards, tmp_path):
    contents = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        files = plots.write_figures(boards, tmp_path / name, ["pdf", "svg"])
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]


def test_text_stays_text_and_has_the_names(boards, tmp_path):
    files = plots.write_figures(boards, tmp_path, ["svg"])
    text = "".join(file.read_text() for file in files)
    assert "torch · onednn" in text and "images/s" in text


def test_pgf_needs_latex(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert plots.choose_formats(None) == ["pdf", "svg", "png"]
    with pytest.raises(UsageError, match="texlive-xetex"):
        plots.choose_formats(["pgf"])
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    assert plots.choose_formats(None) == ["pdf", "svg", "png", "pgf"]


def test_unknown_format_is_refused():
    with pytest.raises(UsageError, match="choose from pdf, svg, png, pgf"):
        plots.choose_formats(["gif"])
