"""Every command that prints text of others: it prints no escape, and its exits are harmless.

Each text field of a record, a certificate, a search and a data set has hostile text.
"""

import csv
import io
import json
import re
import shlex
import subprocess
import tomllib
import unicodedata
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from tests.sample_records import SOFTWARE, build_tuning, make_certified_record, vary_record
from xfbench.base import digests
from xfbench.host.machine import describe_machine
from xfbench.model.record import Record
from xfbench.store.results_folder import Store
from xfbench.tuning import reuse

HOSTILE = (
    "\x1b]0;t\x07\x1b[2J\x9b1m\u202e\ue000\u0378\u2028\u2029\r\x7f=1+1|x"
    "<img src=x onerror=alert(1)>\\input{x}`id`"
    '$(touch pwned);touch pwned\U0001f600\n\'"""\n[x](javascript:alert(1))'
)


def fill_texts(document, is_valid):
    """Return the document with hostile text in each text field that accepts it, and the paths."""
    filled = json.loads(json.dumps(document))
    paths = []

    def fill(parent, key, path):
        value = parent[key]
        if isinstance(value, dict | list):
            for inner in value if isinstance(value, dict) else range(len(value)):
                fill(value, inner, f"{path}.{inner}")
        elif isinstance(value, str) and path not in (".id", ".schema", ".created"):
            parent[key] = f"{value} {HOSTILE}"
            if is_valid(filled):
                paths.append(path)
            else:
                parent[key] = value

    for name in filled:
        fill(filled, name, f".{name}")
    return filled, paths


def is_record(document):
    try:
        Record.model_validate_json(json.dumps(document))
    except ValueError:
        return False
    return True


def seal(document):
    content = {key: value for key, value in document.items() if key != "id"}
    return {**content, "id": digests.of_json(content)}


@pytest.fixture
def hostile_results(record, tmp_path):
    """A results folder of launches, a failure and a search with hostile texts."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    machine = describe_machine().model_copy(update={"accelerators": ("a GPU",), "governor": "x"})
    fields = {
        "machine": machine,
        "software": SOFTWARE.model_copy(update={"packages": {"numpy": "2"}}),
        "batch_unproven_reason": "x",
    }
    drafts = [record(steps=(0.1, 0.11), launch=n, fields=fields) for n in (1, 2, 3)]
    drafts = [
        draft.model_copy(
            update={
                "observed": draft.observed.model_copy(
                    update={
                        "kernel_evidence": ("x",),
                        "libraries": ("x",),
                        "exchange": ("x",),
                        "allocator": "x",
                        "profiler": "x",
                        "precision": "x",
                    }
                )
            }
        )
        for draft in drafts
    ]
    failure = vary_record(drafts[0], status="failed", reason="x", measurement=None)
    all_paths = set()
    for draft in [*drafts, failure]:
        document, paths = fill_texts(draft.document(), is_record)
        all_paths |= {*paths}
        store.add(Record.model_validate_json(json.dumps(seal(document))))
    assert {".reason", ".request.data", ".machine.cpu_model", ".observed.kernel"} <= all_paths
    certified, certificate = make_certified_record(record)
    document = seal(certificate.document() | {"finding": HOSTILE, "verdict": "different"})
    named = seal(certified.document() | {"certificate": document["id"]})
    store.add(Record.model_validate_json(json.dumps(named)))
    store.certificate_path(document["id"]).parent.mkdir(exist_ok=True)
    store.certificate_path(document["id"]).write_text(json.dumps(document))
    search = build_tuning(certified.request.cell(), certified.request.cell()).document()
    search |= {"default_reason": HOSTILE, "framework_version": HOSTILE}
    (store.folder / "tuned").mkdir(exist_ok=True)
    search = seal(search)
    (store.folder / "tuned" / f"{search['id'][7:]}.json").write_text(json.dumps(search))
    (store.folder / "records" / "aa").mkdir(exist_ok=True)
    (store.folder / "records" / "aa" / f"x{HOSTILE.replace('/', '')}.json").write_text("{")
    return store


COMMANDS = [
    *("results list", "results repeat", "results validate", "results references", "predict"),
    *("leaderboard", "leaderboard --view storage", "leaderboard --relative-to framework=reference"),
    *("leaderboard --format markdown", "leaderboard --format latex", "leaderboard --format html"),
    *("leaderboard --format csv", "compare launch=1 launch=2", "compare threads=1 threads=1"),
    *("report --output r.html", "report --output r.html --figures figures", "results pack"),
    *("results export a.tar.gz", "results export a.csv", "results submit given", "tune show"),
    *("study show overall", "study report overall --output s.html", "results import results"),
]


def find_controls(text):
    categories = ("Cc", "Cf", "Cn", "Co", "Zl", "Zp")
    return {c for c in text if c not in "\n\t" and unicodedata.category(c) in categories}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_prints_no_control_characters(run_inline, hostile_results, command):
    output = run_inline(*command.split())
    assert "bug in xfbench" not in output.stderr
    assert output.returncode in (0, 1, 2), output.stderr
    assert not find_controls(output.stdout + output.stderr)


def test_each_record_is_shown_without_control_characters(run_inline, hostile_results):
    for record in hostile_results.records():
        for options in ((), ("--fields",)):
            output = run_inline("results", "show", record.id[7:19], *options)
            assert not find_controls(output.stdout + output.stderr)


def test_data_commands_print_no_control_characters(run_inline, tmp_path, monkeypatch):
    monkeypatch.setenv("XFBENCH_DATA", str(tmp_path / "data"))
    assert run_inline("data", "prepare", "digits").returncode == 0
    [folder] = (tmp_path / "data").iterdir()
    manifest_path = folder / "manifest.json"
    manifest = json.loads(manifest_path.read_text())
    manifest["name"] = HOSTILE
    manifest["classes"] = [f"{HOSTILE} {name}" for name in manifest["classes"]]
    manifest_path.write_text(json.dumps(manifest))
    hostile_folder = folder.rename(folder.parent / HOSTILE.replace("/", "")[:120])
    (folder.parent / f"empty{HOSTILE.replace('/', '')[:100]}").mkdir()
    for command in (["list"], ["check", str(hostile_folder)], ["check", str(hostile_folder), "x"]):
        output = run_inline("data", *command)
        assert "bug in xfbench" not in output.stderr
        assert not find_controls(output.stdout + output.stderr), command


def test_data_set_that_is_named_after_its_user_is_reported(run_inline, tmp_path, monkeypatch):
    monkeypatch.setenv("XFBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("USER", "quetzal")
    named = run_inline("data", "prepare", "digits", "--as", "quetzal-digits")
    assert "names you" in named.stderr and "--as" in named.stderr
    assert "names you" not in run_inline("data", "prepare", "digits").stderr


class Tags(HTMLParser):
    """A collector of the tags and attributes with which a page could run text."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [(tag, *attr) for attr in attrs if attr[0].startswith("on")]
        self.found += [(tag, *attr) for attr in attrs if "javascript:" in (attr[1] or "")]
        self.found += [tag] if tag in ("img", "iframe", "object", "embed") else []


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("leaderboard --format html", None),
        ("report --output r.html", "r.html"),
    ],
)
def test_html_exits_contain_no_element_of_a_record(
    run_inline, hostile_results, tmp_path, command, file
):
    output = run_inline(*command.split())
    assert output.returncode == 0, output.stderr
    text = (tmp_path / file).read_text() if file else output.stdout
    assert "alert(1)" in text
    tags = Tags()
    tags.feed(text)
    assert tags.found == []


@pytest.mark.parametrize("command", ["leaderboard --format csv", "results export rows.csv"])
def test_csv_exits_contain_no_formula_of_a_record(run_inline, hostile_results, tmp_path, command):
    output = run_inline(*command.split())
    file = tmp_path / "rows.csv"
    text = file.read_text() if file.exists() else output.stdout
    rows = [*csv.reader(io.StringIO(text))]
    assert len({len(row) for row in rows if row}) == 1
    for cell in (cell for row in rows for cell in row):
        is_number = re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", cell)
        assert is_number or not cell.lstrip().startswith(tuple("=+-@"))
        assert not find_controls(cell)


def test_latex_exit_contains_no_command_of_a_record(run_inline, hostile_results):
    text = run_inline("leaderboard", "--format", "latex").stdout
    assert "touch pwned" in text
    assert "\\input" not in re.sub("^%.*$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("command", ["leaderboard --format markdown", "results submit given"])
def test_markdown_exits_contain_no_element_of_a_record(
    run_inline, hostile_results, tmp_path, command
):
    output = run_inline(*command.split())
    texts = [file.read_text() for file in tmp_path.glob("given/*.md")] or [output.stdout]
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table"])
    for text in texts:
        tokens = [each for token in parser.parse(text) for each in (token, *(token.children or ()))]
        assert not {"html_block", "html_inline", "image"} & {token.type for token in tokens}
        links = [token.attrs["href"] for token in tokens if token.type == "link_open"]
        assert not [link for link in links if ":" in link]


def test_commands_that_repeat_a_record_run_nothing_else(run_inline, hostile_results, tmp_path):
    lines = run_inline("results", "repeat").stdout
    script = f"xfbench() {{ :; }}\nid() {{ touch pwned; }}\n{lines}"
    subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, check=False)
    assert not (tmp_path / "pwned").exists()
    for line in lines.splitlines():
        assert line.startswith(("xfbench ", "#")), line
        shlex.split(line, comments=True)


def test_settings_of_a_search_are_one_value_each_in_toml(record):
    cell = record().request.cell().model_copy(update={"workload": HOSTILE})
    lines = [*reuse.describe_for_reuse(build_tuning(cell, cell))]
    [matrix] = tomllib.loads("\n".join(lines[lines.index("[[matrix]]") :]))["matrix"]
    assert matrix["workload"] in (HOSTILE, [HOSTILE])
    assert len(matrix) == len(lines) - lines.index("[[matrix]]") - 1
    assert shlex.split(lines[1])[:2] == ["xfbench", "run"] and HOSTILE in shlex.split(lines[1])
