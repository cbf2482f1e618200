"""Test that the README's leaderboard matches the records in docs/."""

from pathlib import Path

from typer.testing import CliRunner

from xfbench import cli
from xfbench.model import adapter

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "docs" / "leaderboard.tar.gz"


def run_command(*words, results):
    outcome = CliRunner().invoke(
        cli.app, [*words, "--results", str(results)], catch_exceptions=False
    )
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_readme_leaderboard_matches_the_archive_records(tmp_path):
    results = tmp_path / "results"
    run_command("results", "import", str(ARCHIVE), results=results)
    table = run_command("leaderboard", results=results).strip()
    assert table in (ROOT / "README.md").read_text()
    assert all(f" {name} " in table for name in adapter.list_names())
