"""Tests that user input reaches a shell or Slurm only as quoted text."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from xfbench.base.errors import UnavailableError, UsageError
from xfbench.base.processes import Command
from xfbench.host import modules
from xfbench.launchers import slurm

SPECIAL_CHARACTERS = "\n\r\t '\"`$(){}[]<>|&;*?!#\\~%=-"
ANY_TEXT = st.text(st.sampled_from(SPECIAL_CHARACTERS + "aZ9é"), min_size=1, max_size=20)
QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
PRINT_COMMAND = ("printf", "%s\\0")


def run_bash(script, folder):
    """Return what the script prints, split at NULs."""
    process = subprocess.run(
        ["bash"], input=script.encode(), cwd=folder, capture_output=True, timeout=30, check=False
    )
    return process.stdout.decode().split("\0")[:-1]


def build_job(**fields):
    defaults = {"name": "xfbench-1", "argv": PRINT_COMMAND, "folder": Path("/tmp"), "nodes": 1}
    return slurm.Job(**{**defaults, "ranks_per_node": 1, "threads": 1, "minutes": 1, **fields})


@QUICK
@given(words=st.lists(ANY_TEXT, min_size=1, max_size=4), value=ANY_TEXT)
def test_job_script_quotes_command_and_variables(tmp_path, words, value):
    argv = ("env", "sh", "-c", 'printf "%s\\0" "$X" "$@"', "-", *words)
    script = slurm.job_script(build_job(argv=argv, variables=(("X", value),)))
    assert run_bash(script, tmp_path) == [value, *words]
    assert [file.name for file in tmp_path.iterdir()] == ["job.status"]


@QUICK
@given(text=ANY_TEXT, field=st.sampled_from(["name", "queue", "account", "folder", "options"]))
def test_slurm_directive_is_a_single_line_or_refused(text, field):
    assume(text.strip())
    value = {"folder": Path(text), "options": (text,)}.get(field, text)
    plain_script = slurm.job_script(
        build_job(**{field: {"folder": Path("x"), "options": ("x",)}.get(field, "x")})
    )
    try:
        script = slurm.job_script(build_job(**{field: value}))
    except UsageError as error:
        assert len(str(error).splitlines()) == 1
        return
    assert len(script.splitlines()) == len(plain_script.splitlines())
    [line] = set(script.splitlines()) - set(plain_script.splitlines()) or {None}
    assert line is None or line.startswith(("#SBATCH --", '#SBATCH "--', "#SBATCH "))
    assert text == "x" or line is None or str(value if field != "options" else text) in line


@pytest.mark.parametrize("character", "\"'\\#\n\0\u202e")
def test_slurm_directive_with_a_special_character_is_refused(character):
    for field in ({"queue": f"a{character}b"}, {"options": (f"--x=a{character}b",)}):
        with pytest.raises(UsageError, match="cannot be written to a job script"):
            slurm.job_script(build_job(**field))


@QUICK
@given(words=st.lists(ANY_TEXT, min_size=1, max_size=4), value=ANY_TEXT)
def test_shell_line_repeats_the_command_exactly(tmp_path, words, value):
    # No path: without quotes, a value that ends with ">" would empty the file of the next word.
    argv = ("sh", "-c", 'printf "%s\\0" "$X" "$@"', "-", *words)
    line = Command(argv, {"X": value}, tmp_path).to_shell_line()
    assert run_bash(line, tmp_path) == [value, *words]


def test_shell_line_keeps_words_together(tmp_path):
    """Unlike generated words, these cannot do harm if the quotes are taken out to try this test."""
    command = Command(("printf", "%s\\0", "two words", "$X"), {"X": "three short words"}, tmp_path)
    assert run_bash(command.to_shell_line(), tmp_path) == ["two words", "$X"]


@pytest.fixture
def module_system(tmp_path):
    """A start-up file for bash that has no module and stores the requested name in a file."""
    init = tmp_path / "init"
    init.write_text('module() { test "$1" != load || { printf "%s" "$2" > asked; return 1; }; }')
    return init


@QUICK
@given(name=ANY_TEXT)
def test_module_name_is_passed_as_a_single_word(tmp_path, module_system, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnavailableError):
        modules.load_variables_changed_by_modules(str(module_system), (), (name,))
    assert (tmp_path / "asked").read_bytes().decode() == name
    assert {file.name for file in tmp_path.iterdir()} == {"init", "asked"}
