"""Tests that the report in docs/example/ matches its records and covers every study."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from xfbench import cli
from xfbench.planning import experiment

FOLDER = Path(__file__).parents[2] / "docs" / "example"
REPORT_HTML = (FOLDER / "report.html").read_text()


def test_example_report_matches_its_records(tmp_path):
    """If its text changed, rewrite report.html with the commands in docs/studies.md."""
    archive, results, report = (
        FOLDER / "records.tar.gz",
        tmp_path / "results",
        tmp_path / "report.html",
    )
    for arguments in (
        ["results", "import", str(archive), "--results", str(results)],
        ["report", "--results", str(results), "--output", str(report)],
    ):
        result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert report.read_text() == REPORT_HTML


@pytest.mark.parametrize("name", experiment.list_names())
def test_example_report_has_a_page_of_every_study(name):
    assert f'<section class="study" id="study-{name}"' in REPORT_HTML, (
        "a new study needs records in docs/example/: `make studies`, then the commands in "
        "docs/studies.md"
    )
