"""Every command in README.md and docs/ is run, made short, in one reader's folder.

The commands of a page are run in the order of the page. A line that another page has too is run
once.
"""

import pytest

from tests.docs.commands import (
    COMMANDS,
    ELSEWHERE,
    PAGES,
    SLOW,
    STATUS,
    code,
    shorten,
    starts_nothing,
)


def failure(command, reader, here):
    """Run the command; return a report if its exit status is not an expected one."""
    line = shorten(command)
    if line in reader.done:
        return None
    done = here(*reader.words(line)) if starts_nothing(command) else reader.shell(line)
    if done.returncode not in STATUS.get(command, {0}):
        return f"{command}\n  {line}\n  {done.returncode}: {done.stdout[-2000:]}{done.stderr}"
    reader.done.add(line)
    return None


@pytest.mark.deep
@pytest.mark.parametrize("page", [page for page in PAGES if COMMANDS[page]])
def test_every_command_of_a_page_works(page, reader, here):
    short = [one for one in COMMANDS[page] if one not in SLOW and one not in ELSEWHERE]
    failures = [failure(command, reader, here) for command in short]
    assert not any(failures), "\n".join(filter(None, failures))


@pytest.mark.long
@pytest.mark.parametrize("command", SLOW)
def test_a_slow_command_works(command, reader, here):
    assert failure(command, reader, here) is None


@pytest.mark.deep
def test_python_examples_run(reader):
    text = code("docs/python.md", "python")
    written = "steps=20, launches=3"
    assert written in text
    short = "steps=4, launches=1, batch_size=8, verify=False"
    (reader.folder / "example.py").write_text(text.replace(written, short))
    done = reader.shell("python example.py")
    assert done.returncode == 0, done.stderr
    assert "unknown framework 'torhc': did you mean torch?" in done.stdout
    assert any(word in done.stdout for word in ("not_distinguishable", "faster", "None"))
