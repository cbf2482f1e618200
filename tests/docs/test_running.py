"""Every command in README.md and docs/ is run, made short, in one reader's folder.

The commands of a page are run in the order of the page. A line that another page has too is run
once.
"""

import pytest

from tests.docs.commands import (
    COMMANDS,
    PAGES,
    RUN_BY_OTHER_TESTS,
    SLOW,
    STATUS,
    is_harmless,
    join_code,
    shorten,
)


def find_failure(command, reader, run_inline):
    """Run the command; return a report if its exit status is not an expected one."""
    line = shorten(command)
    if line in reader.run_lines:
        return None
    outcome = run_inline(*reader.split_words(line)) if is_harmless(command) else reader.shell(line)
    if outcome.returncode not in STATUS.get(command, {0}):
        return (
            f"{command}\n  {line}\n  {outcome.returncode}: {outcome.stdout[-2000:]}{outcome.stderr}"
        )
    reader.run_lines.add(line)
    return None


@pytest.mark.deep
@pytest.mark.parametrize("page", [page for page in PAGES if COMMANDS[page]])
def test_every_command_of_a_page_works(page, reader, run_inline):
    quick_commands = [
        command
        for command in COMMANDS[page]
        if command not in SLOW and command not in RUN_BY_OTHER_TESTS
    ]
    failures = [find_failure(command, reader, run_inline) for command in quick_commands]
    assert not any(failures), "\n".join(filter(None, failures))


@pytest.mark.long
@pytest.mark.parametrize("command", SLOW)
def test_a_slow_command_works(command, reader, run_inline):
    assert find_failure(command, reader, run_inline) is None


@pytest.mark.deep
def test_python_examples_run(reader):
    text = join_code("docs/python.md", "python")
    settings = "steps=20, launches=3"
    assert settings in text
    short_settings = "steps=4, launches=1, batch_size=8, verify=False"
    (reader.folder / "example.py").write_text(text.replace(settings, short_settings))
    outcome = reader.shell("python example.py")
    assert outcome.returncode == 0, outcome.stderr
    assert "unknown framework 'torhc': did you mean torch?" in outcome.stdout
    assert any(word in outcome.stdout for word in ("not_distinguishable", "faster", "None"))
