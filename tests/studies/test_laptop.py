"""Tests that the study pages in docs/laptop/ match their records."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from xfbench import cli

FOLDER = Path(__file__).parents[2] / "docs" / "laptop"
ARCHIVES = sorted(FOLDER.glob("*.tar.gz"))


def test_laptop_archives_exist():
    assert ARCHIVES


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name)
def test_laptop_page_matches_its_records(archive, tmp_path):
    """If the page's text changed, write it again in that folder.

    Run `xfbench study report NAME --size laptop --with NAME.tar.gz --output NAME.md`.
    """
    name = archive.name.removesuffix(".tar.gz")
    arguments = ["study", "report", name, "--size", "laptop", "--with", str(archive)]
    arguments += ["--results", str(tmp_path / "none"), "--output", str(tmp_path / f"{name}.md")]
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    output_files = sorted(tmp_path.iterdir())
    assert [file.name for file in output_files] == sorted(
        path.name for path in FOLDER.glob(f"{name}*[dg]")
    )
    for file in output_files:
        assert file.read_text() == (FOLDER / file.name).read_text(), file.name
