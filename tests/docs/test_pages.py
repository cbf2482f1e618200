"""README.md and docs/: links, the index, and every command as the command line takes it.

A command with --dry-run is run with it, as the page writes it. A command that starts no framework
is run. Only the options of the others are parsed. test_running.py runs all of them.
"""

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest
import typer

import xfbench
from tests.docs import cli_page
from tests.docs.commands import (
    COMMANDS,
    HAS_DRY_RUN,
    ONLY_PARSED,
    PAGES,
    REPLACEMENTS,
    ROOT,
    RUN_BY_OTHER_TESTS,
    SLOW,
    STATUS,
    fill_placeholders,
    join_code,
)
from xfbench import cli

# The target of a link in the text, or of a reference.
_LINK = re.compile(r"(?:\]\(|^\[[^\]]+\]: )([^)#:\s]+)(?:#[^)\s]*)?(?:\)|$)", re.MULTILINE)


def parse(command, words, name="xfbench"):
    """Parse the words with this command's parser, and what remains with the subcommand's."""
    with command.make_context(name, list(words)) as context:
        if not hasattr(command, "commands"):
            return
        remaining_words = [*context._protected_args, *context.args]
        subname, subcommand, remaining_words = command.resolve_command(context, remaining_words)
        parse(subcommand, remaining_words, subname)


@pytest.mark.parametrize("page", [page for page in PAGES if COMMANDS[page]])
def test_a_page_has_commands_that_the_parser_accepts(page, reader, run_inline, monkeypatch):
    monkeypatch.setenv("XFBENCH_WORKLOADS", str(reader.folder / "networks"))
    failures = []
    for command in COMMANDS[page]:
        line = fill_placeholders(command)
        if line.startswith("make "):
            subprocess.run(line.split(), check=True, capture_output=True, timeout=60)
        if not line.startswith("xfbench ") or line in reader.run_lines:
            continue
        reader.run_lines.add(line)
        words = reader.split_words(line)
        if command in ONLY_PARSED:
            parse(typer.main.get_command(cli.app), words)
            continue
        if HAS_DRY_RUN.match(line) and "--dry-run" not in words:
            words.append("--dry-run")
        outcome = run_inline(*words)
        if outcome.returncode not in STATUS.get(command, {0}):
            failures.append(f"{command}\n  {' '.join(words)}\n  {outcome.stderr}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/schema.md"])
def test_a_command_in_a_sentence_has_known_options(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    for quoted in re.findall(r"`xfbench\s+([^`]+)`", text):
        words, command = quoted.split(), typer.main.get_command(cli.app)
        while words and hasattr(command, "commands"):
            name = words.pop(0).partition("|")[0]
            if name.startswith("--") or name.isupper():
                break
            assert name in command.commands, f"{page}: xfbench {quoted}"
            command = command.commands[name]
        options = {option for parameter in command.params for option in parameter.opts}
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= options | {"--help"}, f"{page}: xfbench {quoted}"


def test_python_examples_use_names_that_exist():
    tree = ast.parse(join_code("docs/python.md", "python"))
    names = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "xfbench"
    }
    assert {"load", "run"} <= names <= set(xfbench.__all__)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    text = (ROOT / page).read_text()
    for target in _LINK.findall(text):
        assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_docs_index_lists_every_page():
    targets = _LINK.findall((ROOT / "docs/README.md").read_text())
    links = {target for target in targets if target.endswith(".md")}
    pages = {Path(page) for page in PAGES if page.startswith("docs/")}
    assert links == {str(page.relative_to("docs")) for page in pages} - {"README.md"}


def test_every_exception_is_for_a_command_that_a_page_has():
    commands = {command for page in PAGES for command in COMMANDS[page]}
    assert {*REPLACEMENTS, *STATUS, *RUN_BY_OTHER_TESTS, *ONLY_PARSED, *SLOW} <= commands
    for reason in RUN_BY_OTHER_TESTS.values():
        assert (ROOT / reason.split(": ")[-1]).is_file()


def test_the_page_of_the_command_line_is_up_to_date():
    assert (ROOT / "docs/reference/cli.md").read_text() == cli_page.build_page()


def test_readme_says_how_xfbench_gets_on_the_path():
    text = (ROOT / "README.md").read_text()
    steps = ("    make bench", ". .venv/bin/activate", "    xfbench run")
    places = [text.index(words) for words in steps]
    assert places == sorted(places)
    assert "pipx install ." in text and "uv tool install ." in text


def read_prose_lines(page):
    """Return the lines of a page that are neither code nor HTML."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    return [line for line in text.splitlines() if not line.startswith(("    ", "<"))]


@pytest.mark.parametrize("page", PAGES)
def test_prose_has_short_lines(page):
    """A long link may pass the usual 100 characters."""
    lines = [line for line in read_prose_lines(page) if not line.startswith("|")]
    assert max(map(len, lines)) <= 150


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_tables_have_lines_of_at_most_100_characters(page):
    tables = [line for line in read_prose_lines(page) if line.startswith("|")]
    assert [line for line in tables if len(line) > 100] == []


def test_the_glossary_explains_our_own_words():
    text = (ROOT / "docs/reference/glossary.md").read_text()
    for word in ("block", "cell", "outlier", "rung", "scaling, strong or weak"):
        assert f"\n- {word}: " in text


def test_the_page_of_the_environment_is_complete():
    text = (ROOT / "docs/reference/environment.md").read_text()
    names = json.loads((ROOT / "tests/golden/variables.json").read_text())["prefixed"]
    internal = {"XFBENCH_RUN", "XFBENCH_WATCH"}  # not for users
    assert {name for name in names if name not in text} == internal
    codes = re.findall(r"^- (\d+): ", text.partition("## Exit codes")[2], re.MULTILINE)
    assert codes == ["0", "1", "2", "3", "130", "143"]
