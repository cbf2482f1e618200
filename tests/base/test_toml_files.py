"""Messages about invalid TOML files: the place, and the settings that a table has."""

import pytest
from pydantic import BaseModel, ConfigDict, Field

from xfbench.base import toml_files
from xfbench.base.errors import UsageError


class Claim(BaseModel, extra="forbid"):
    text: str
    at_least: int = Field(default=1, ge=1, alias="least")


class Analysis(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    claim: tuple[Claim, ...] = ()
    threads: tuple[int, ...] | int = ()


class Study(BaseModel, extra="forbid"):
    title: str
    analysis: list[Analysis] = []
    limits: Claim | None = None


TEXT = """\
title = "text"
[[analysis]]
name = "one"
[[analysis.claim]]
text = "a"
[[analysis]]
name = "two"
[[analysis.claim]]
text = "b"
[[analysis.claim]]
text = "c"
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{TEXT}least = 0\n", "line 12: analysis.1.claim.1.least: give at least 1 (got 0)"),
        (
            TEXT.replace('"b"', '"b"\nlest = 2'),
            "line 10: analysis.1.claim.0: unknown setting 'lest': did you mean least?",
        ),
        (
            TEXT.replace('"two"', '"two"\ncolour = 1'),
            "line 8: analysis.1: unknown setting 'colour': choose from claim, name, threads",
        ),
        ('title = "x"\n[limits]\ntext = 3\n', "line 3: limits.text: Input should be a valid"),
        ("", "study.toml: title: Field required"),
        ('[[analysis]]\nname = "a title"', "study.toml: title: Field required"),
        (
            TEXT.replace('name = "one"\n', ""),
            "line 2: analysis.0.name: Field required",
        ),
        ('title = "x"\n[colours]\nred = 1', "line 2: unknown setting 'colours'"),
        (
            'title = "x"\nlimits = {text = "text of = least", least = 0}',
            "line 2: limits.least: give at least 1",
        ),
        ('title = "x"\n["limits"]\ntext = 3\n', "line 3: limits.text:"),
        (
            'title = "x"\nanalysis = [\n{name = "a"},\n{name = 3}]\n',
            "line 2: analysis.1.name:",
        ),
        ('title = "x"\nlimits = {least = 1}', "line 2: limits.text: Field required"),
        (
            f'{TEXT}# threads\n[[analysis]]\nname = "x"\nthreads = [1, "a"]\n',
            "line 15: analysis.2.threads.1:",
        ),
        ('titel = "x"\ntitle = "y"', "line 1: unknown setting 'titel': did you mean title?"),
    ],
)
def test_invalid_content_is_named_with_its_place(tmp_path, text, message):
    file = tmp_path / "study.toml"
    file.write_text(text)
    text, content = toml_files.read_text_and_content(file)
    with pytest.raises(UsageError) as error:
        toml_files.validate(Study, content, file, text)
    assert str(error.value).startswith(str(file)) and message in str(error.value)


def test_a_mark_at_the_beginning_is_skipped_and_other_encodings_are_named(tmp_path):
    file = tmp_path / "study.toml"
    file.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert toml_files.read_text_and_content(file)[1]["title"] == "text"
    for encoding in ("utf-16", "latin-1"):
        file.write_bytes('title = "é"'.encode(encoding))
        with pytest.raises(UsageError, match=r"study.toml is not a text in UTF-8: .*: save it"):
            toml_files.read_text_and_content(file)
