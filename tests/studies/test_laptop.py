"""The findings of studies in docs/laptop/ are what the records beside them say, today as then."""

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
    """Where its words have changed: `xfbench study report NAME --size laptop --with NAME.tar.gz
    --output NAME.md` in that folder.
    """
    name = archive.name.removesuffix(".tar.gz")
    line = ["study", "report", name, "--size", "laptop", "--with", str(archive)]
    line += ["--results", str(tmp_path / "none"), "--output", str(tmp_path / f"{name}.md")]
    done = CliRunner().invoke(cli.app, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    made = sorted(tmp_path.iterdir())
    assert [one.name for one in made] == sorted(p.name for p in FOLDER.glob(f"{name}*[dg]"))
    for one in made:
        assert one.read_text() == (FOLDER / one.name).read_text(), one.name
