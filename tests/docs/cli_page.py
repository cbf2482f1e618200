"""The page docs/reference/cli.md: the help of every command.

`make settings` writes it.
"""

import inspect

import typer

from xfbench import cli
from xfbench.rendering.formats import join_markdown_blocks

INTRODUCTION = """# Command line

The help of every command, as `--help` prints it. The settings that several commands share are
explained in [Settings](settings.md). To complete names in your shell, run
`xfbench --install-completion` once.
"""


def list_commands(command, name="xfbench"):
    """Yield (name, command) for this command and all its visible subcommands."""
    yield name, command
    for subname, subcommand in getattr(command, "commands", {}).items():
        if not subcommand.hidden:
            yield from list_commands(subcommand, f"{name} {subname}")


def describe_command(name, command):
    """Yield the blocks of Markdown about one command."""
    context = typer.Context(command, info_name=name)
    yield f"{'#' * min(4, 1 + len(name.split()))} {name}"
    prose, _, examples = inspect.cleandoc(command.help or "").partition("\b")
    yield from (" ".join(part.split()) for part in prose.split("\n\n") if part)
    if examples.strip():
        lines = [line.strip() for line in examples.strip().splitlines()]
        yield "\n".join(["```text", *lines, "```"])
    records = [
        parameter.get_help_record(context)
        for parameter in command.get_params(context)
        if not getattr(parameter, "hidden", False)
    ]
    yield from (
        f"- `{names}`: {' '.join(text.split())}"
        for names, text in filter(None, records)
        if not names.startswith("--help") and not names.startswith("-h")
    )


def build_page():
    """Return the page as Markdown."""
    command = typer.main.get_command(cli.app)
    blocks = [INTRODUCTION.rstrip()]
    for name, each in list_commands(command):
        blocks += describe_command(name, each)
    return join_markdown_blocks(blocks) + "\n"


if __name__ == "__main__":
    print(build_page(), end="")
