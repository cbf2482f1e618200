"""The files that are generated from the declarations of settings: `make settings` writes them.

- `xfbench/model/stored_settings.py`: fields of cells.
- `xfbench/planning/matrix_settings.py`: fields of matrices.
- `xfbench/running.py`: `xfbench.run` with its signature.
- `docs/reference/settings.md`: the page for users.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from xfbench.model import settings
from xfbench.model.request import Cell
from xfbench.model.settings import Setting
from xfbench.rendering import formats

_ROOT = Path(__file__).parent.parent
_NOTICE = "Written by `make settings` from settings.py: do not edit."
_WIDTH = 100
_RUN_END = '''\
If a setting is invalid, raises UsageError before any launch. A failed launch raises no
exception. Instead, the `status` of its record is not "ok", and the `reason` says why.

>>> records = xfbench.run("torch", "lenet", steps=20, launches=3, results="results")
"""
return api.run_with_settings(locals())'''
_INTRODUCTION = """\
The settings of `xfbench run`, by the groups of its help. The key is the name in a study's
`[[matrix]]`, and the name of the argument of `xfbench.run`. If several values are allowed (`,...`),
each value gives cells of its own. In TOML and Python, several values are a list. Keys marked
(Python) are not keys of a matrix."""


def build_files() -> dict[Path, str]:
    """Return the text of each generated file, by its path relative to the checkout."""
    return {
        Path("xfbench/model/stored_settings.py"): _build_stored_settings(),
        Path("xfbench/planning/matrix_settings.py"): _build_matrix_settings(),
        Path("xfbench/running.py"): _build_run(),
        Path("docs/reference/settings.md"): build_page(),
    }


def write_files(root: Path = _ROOT.parent) -> None:
    """Write the generated files below `root`, the checkout."""
    for path, text in build_files().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def _one_type(setting: Setting) -> str:
    """Return the type of one value in a model."""
    if setting.type is settings.WHOLE_NUMBER:
        names = {None: "int", 0: "NonNegative", 1: "Positive"}
        return names.get(setting.minimum, f"Annotated[int, Field(ge={setting.minimum})]")
    return "Bytes" if setting.type is settings.SIZE else setting.type.annotation


def _choice_type(values: Iterable[object]) -> str:
    return f"Literal[{', '.join(_quoted(value) for value in values if value is not None)}]"


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _tuple_text(values: tuple[object, ...]) -> str:
    return f"({', '.join(map(_quoted, values))}{',' if len(values) == 1 else ''})"


def _build_stored_settings() -> str:
    lines = [
        f'"""Settings that every cell stores. {_NOTICE}"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Literal",
        "",
        "from pydantic import BaseModel, ConfigDict, Field",
        "",
        "",
        "class StoredSettings(BaseModel):",
        '    """Fields of a cell. Null: the setting was not given.',
        "",
    ]
    stored = [setting for setting in settings.SETTINGS if setting.is_stored]
    for setting in stored:
        text = f"`{setting.cell_field}`: {setting.full_help[0].lower()}{setting.full_help[1:]}"
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    - ", subsequent_indent="      ")
    lines += ['    """', "", '    model_config = ConfigDict(frozen=True, extra="forbid")', ""]
    for setting in stored:
        kind = setting.type.annotation
        if setting.choices:
            kind = _choice_type(setting.choices.values())
        default = f"Field(default=None, ge={setting.minimum})"
        default = "None" if setting.minimum is None else default
        if setting.is_switch:
            kind, default = "bool", "False"
        lines.append(
            f"    {setting.cell_field}: {kind}{'' if setting.is_switch else ' | None'} = {default}"
        )
    return "\n".join(lines) + "\n"


def _build_matrix_settings() -> str:
    lines = [
        f'"""Settings that a matrix may have. {_NOTICE}"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Sequence",
        "from typing import Annotated, Literal",
        "",
        "from pydantic import BaseModel, BeforeValidator, ConfigDict, Field",
        "",
        "from xfbench.model.strategy import Value",
        "from xfbench.planning.study_form import (",
        "    Batches,",
        "    Bytes,",
        "    NonNegative,",
        "    Positive,",
        "    Positives,",
        "    Share,",
        "    as_list,",
        ")",
        "",
        "",
        "class MatrixSettings(BaseModel):",
        '    """Lists of settings: see docs/reference/settings.md. None: the default."""',
        "",
        '    model_config = ConfigDict(frozen=True, extra="forbid")',
        "",
    ]
    for setting in settings.SETTINGS:
        lines.append(f"    {setting.name}: {_matrix_type_and_default(setting)}")
    return "\n".join(lines) + "\n"


def _matrix_type_and_default(setting: Setting) -> str:
    if setting.type is settings.OPTIONS:
        return f"{setting.matrix_type} = Field(default_factory=dict)"
    if setting.matrix_type:
        kind = setting.matrix_type
    elif setting.is_list:
        kind = f"Annotated[Sequence[{_one_type(setting)}], BeforeValidator(as_list)]"
    elif setting.is_switch:
        kind = "bool"
    elif setting.choices:
        kind = _choice_type(setting.choices)
    elif setting.type is settings.SHARE:
        kind = "Share"
    else:
        kind = _one_type(setting)
    if setting.name in ("framework", "workload"):
        return kind
    if setting.default is None:
        return f"{kind} | None = None"
    if isinstance(setting.default, tuple):
        return f"{kind} = {_tuple_text(setting.default)}"
    return f"{kind} = {setting.default!r}"


def _build_run() -> str:
    listed = [*settings.SETTINGS, *settings.RUN_OPTIONS]
    lines = [
        f'"""`xfbench.run`. {_NOTICE}"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Mapping, Sequence",
        "from pathlib import Path",
        "",
        "from xfbench import api",
        "from xfbench.model.record import Record",
        "",
        "",
        "def run(",
    ]
    for number, setting in enumerate(listed):
        lines += ["    *,"] if number == 2 else []
        kind = setting.type.annotation
        if setting.is_list:
            kind = f"{kind} | Sequence[{kind}]"
        if setting.type in (settings.SIZE, settings.DURATION, settings.SHARE):
            kind = f"{kind} | str"
        lines.append(
            f"    {setting.name}: bool = {setting.default},"
            if setting.is_switch
            else f"    {setting.name}: {kind} | None = None,"
        )
    lines += [
        ") -> list[Record]:",
        '    """Measure with the settings of `xfbench run`, and return the records.',
        "",
        "    Every combination of the given lists is a cell. Every launch is a fresh process.",
        "    Progress is printed to standard error. A setting that is None has its default.",
        "",
    ]
    for setting in listed:
        text = f"`{setting.name}`: {_help_in_python(setting)}"
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    - ", subsequent_indent="      ")
    lines += ["", *textwrap.indent(_RUN_END, "    ").splitlines()]
    return "\n".join(lines) + "\n"


def _help_in_python(setting: Setting) -> str:
    """Return the help, with the switches that are on by default put the other way round."""
    if setting.name == "verify":
        return "whether to verify first; unverified cells are not ranked."
    if setting.name == "wait":
        return "whether to wait for submitted jobs."
    text = setting.full_help
    if setting.choices and not setting.is_list:
        text = f"{text.removesuffix('.')}: {', '.join(setting.choices)}."
    is_name = text.startswith(("Slurm", "Python", "LR ", "LARS"))
    return text if is_name else f"{text[0].lower()}{text[1:]}"


def build_page() -> str:
    """Return the page for users: a list of settings for each panel of the help."""
    parts = ["# Settings", f"<!-- {_NOTICE} -->", _INTRODUCTION]
    for panel in settings.PANELS:
        items = [
            _setting_item(setting)
            for setting in settings.BY_NAME.values()
            if setting.panel == panel
        ]
        parts += [f"## {panel}", formats.join_markdown_blocks(items)]
    return "\n\n".join(parts) + "\n"


def _setting_item(setting: Setting) -> str:
    """Return the list item that describes a setting."""
    option = f"{setting.option}{'' if setting.is_switch else ' ' + setting.metavar}"
    facts = {
        "Key": _key(setting),
        "Values": None if setting.is_switch else ", ".join(setting.choices) or setting.type.name,
        "Default": setting.default_text,
        "In records": f"`request.{setting.cell_field}`"
        if setting.cell_field in Cell.model_fields
        else None,
    }
    sentences = [f"{setting.help.removesuffix('.')}."]
    sentences += [f"{name}: {text}." for name, text in facts.items() if text]
    return f"- `{option}`: {' '.join(sentences)}"


def _key(setting: Setting) -> str | None:
    """Return the key of a matrix or of `xfbench.run`, in code style; None if there is none."""
    if setting in settings.SETTINGS:
        return f"`{setting.name}`"
    return f"`{setting.name}` (Python)" if setting in settings.RUN_OPTIONS else None


if __name__ == "__main__":
    write_files()
