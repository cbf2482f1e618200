"""Tests that the report in docs/example/ matches its records and covers every study."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from xfbench import cli
from xfbench.planning import experiment

FOLDER = Path(__file__).parents[2] / "docs" / "example"
REPORT_HTML = (FOLDER / "report.html").read_text()


@pytest.mark.parametrize(
    ("archive_name", "report_name"),
    [("records.tar.gz", "report.html"), ("profiles.tar.gz", "profiles.html")],
)
def test_example_report_matches_its_records(archive_name, report_name, tmp_path):
    """If its text changed, rewrite the report with the commands in docs/studies.md."""
    archive, results, report = FOLDER / archive_name, tmp_path / "results", tmp_path / report_name
    for arguments in (
        ["results", "import", str(archive), "--results", str(results)],
        ["report", "--results", str(results), "--output", str(report)],
    ):
        result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert report.read_text() == (FOLDER / report_name).read_text()


@pytest.mark.parametrize("name", experiment.list_names())
def test_example_report_has_a_page_of_every_study(name):
    assert f'<section class="study" id="study-{name}"' in REPORT_HTML, (
        "a new study needs records in docs/example/: `make studies`, then the commands in "
        "docs/studies.md"
    )


def test_the_example_of_profiles_compares_the_layers_of_two_rows():
    text = (FOLDER / "profiles.html").read_text()
    assert "Too few rows have a profile" not in text and "Why is one row faster?" in text
