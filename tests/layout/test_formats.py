"""Whatever a record says is text in every format: it runs nothing, hides nothing, breaks nothing.

And the same records give the same tables, in whichever order they come.
"""

import csv
import io
import json
import random
import re
import unicodedata
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from tests.sample_records import SOFTWARE, certify_records
from xfbench.analysis import best, slowdown
from xfbench.analysis.leaderboard import tables as all_tables
from xfbench.host.machine import describe
from xfbench.layout import formats, slowdown_tables, tables
from xfbench.results import index
from xfbench.results.store import Store

HOSTILE = [
    "<script>alert(1)</script>",
    "--><img src=x onerror=alert(1)><!--",
    "</td></tr></table><svg onload=alert(1)>",
    "a | b | c\n| x | y |\n### not a heading\n- [x](javascript:alert(1))",
    "![x](http://example.org/x.png) <http://example.org> www.example.org `code` **bold** @someone",
    "\\input{/etc/passwd} \\write18{id} $x$ % & # _ ^ ~ { }",
    "\n\\end{tabular}\\input{x}\n",
    "^^5cinput{x}",
    "=cmd|' /C calc'!A0",
    " \t=1+1",
    "@SUM(1)",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "\u202egnp.exe\u2066\u200f",
    "- item",
    "1. item",
    "    code",
    "nul\x00nul\r\x0b\x0c\x85\u2028\u2029",
    "Z" + "\u0351" * 500,
    "{{ 7 * 7 }}{% for x in y %}",
    "w" * 5_000,
]
COLUMNS = list(tables.COLUMNS)


@pytest.fixture
def hostile(record):
    """Tables of records in which each such text stands in every field that holds any."""
    good, bad = [], []
    for n, text in enumerate(HOSTILE):
        machine = describe().model_copy(
            update={"cpu_model": text, "accelerators": (text,), "microarchitecture": text}
        )
        fields = {"software": SOFTWARE, "machine": machine}
        asked = dict.fromkeys(("framework", "kernel", "device", "precision", "data"), text)
        options = {"strategy": text, "strategy_options": ((text, text),), "launcher": text}
        for launch in (1, 2):
            one = record(
                launch=launch,
                fields=fields,
                **asked,
                **options,
                ranks=2,
                global_batch_size=4,
                batch_size_per_rank=2,
            )
            seen = one.observed.model_copy(update={"framework_version": text, "kernel": text})
            good.append(one.model_copy(update={"observed": seen, "source": "measured"}))
        failed = {**fields, "status": "failed", "reason": text, "measurement": None}
        bad.append(record(fields=failed, threads=n + 1, **asked))
        bad.append(record(fields={**failed, "reason": f"{text} again"}, threads=99, **asked))
    found, certificates = certify_records(good)
    workload = [
        one.model_copy(update={"request": one.request.model_copy(update={"workload": text})})
        for one, text in zip(bad[::2], HOSTILE, strict=True)
    ]
    return all_tables([*found, *bad, *workload], certificates)


def written(hostile, name):
    """All that is ever printed in a format, table by table."""
    for columns in ("throughput", "storage"):  # the others have the same texts, and numbers
        for table in [
            *hostile,
            *best.reduce_to_best(hostile, ["framework", "machine", "strategy"]),
        ]:
            yield tables.FORMATS[name]([table], columns)
    for by in (["framework"], ["machine", "strategy_options"]):
        for table in slowdown.slowdowns(hostile, by):
            yield slowdown_tables.FORMATS[name]([table])


def unseen(text):
    """Characters that a terminal would act on, or that hide something."""
    return [
        one for one in text if one != "\n" and unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")
    ]


@pytest.mark.parametrize("name", tables.FORMATS)
def test_no_format_prints_control_characters_or_endless_text(hostile, name):
    for text in written(hostile, name):
        assert not unseen(text)
        if name in formats.FORMATS:
            assert "w" * 2000 not in text


def test_text_table_has_a_single_line_per_row(hostile):
    for table in hostile:
        lines = tables.to_text([table]).splitlines()
        reasons = {row.reason for row in table.unranked}
        count = 1 + (2 + len(table.rows)) * bool(table.rows)
        count += (1 + 2 + len(table.unranked) + (len(reasons) == 1)) * bool(table.unranked)
        assert len(lines) == count


def test_markdown_contains_only_headings_tables_and_text(hostile):
    # With raw HTML and links that are only text allowed, as the laxest of readers has them.
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    allowed = {"heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "inline"}
    for text in written(hostile, "markdown"):
        cells = [0]
        for token in parser.parse(text):
            assert re.sub("_(open|close)$", "", token.type) in allowed, token
            cells += [0] if token.type == "tr_open" else []
            cells[-1] += token.type in ("td_open", "th_open")
            for child in token.children or ():
                assert child.type in ("text", "text_special"), child
        assert sum(one > 0 for one in cells) == text.count("\n|") - text.count("\n|--")
        assert not re.search(r"https?://|www\.|(?<!\\)@", text)


class Tags(HTMLParser):
    """What a browser would see in it."""

    def __init__(self):
        super().__init__()
        self.tags, self.others = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.others += attrs

    def handle_comment(self, data):
        self.others.append(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def test_html_contains_only_tables_headings_and_text(hostile):
    for text in written(hostile, "html"):
        seen = Tags()
        seen.feed(text)
        assert seen.tags <= {"table", "thead", "tbody", "tr", "th", "td", "h3", "p"}
        assert seen.others == []


def test_latex_contains_only_allowed_commands(hostile):
    ours = {"begin", "end", "toprule", "midrule", "bottomrule", "par"}
    ours |= {"textbackslash", "textasciitilde", "ensuremath", "backslash"}
    for text in written(hostile, "latex"):
        for line in text.splitlines():
            if line.startswith("%"):
                continue
            assert set(re.findall(r"\\([a-zA-Z]+)", line)) <= ours
            assert not re.search(r"(?<!\\)[%#_]|\^(?!\{)", line)
        rest = re.sub("^%.*$", "", text, flags=re.MULTILINE)
        environments = re.findall(r"\\(begin|end)\{(.*?)\}", rest)
        assert environments == [("begin", "tabular"), ("end", "tabular")] * (len(environments) // 2)


def test_csv_contains_no_spreadsheet_formulas(hostile):
    for text in written(hostile, "csv"):
        for line in csv.DictReader(io.StringIO(text)):
            assert not any(field.lstrip().startswith(tuple("=+-@")) for field in line.values())


def test_json_is_ascii_and_keeps_the_text(hostile):
    for text in written(hostile, "json"):
        assert text.isascii()
    document = json.loads(tables.to_json(hostile))
    assert {table["device"] for table in document["tables"]} == set(HOSTILE)


@pytest.fixture
def many(record):
    """Records of four configurations, launches done twice, two not ranked; some of one instant."""
    made = [
        record(
            steps=(0.1 + 0.001 * launch + again / 3000,) * 3,
            launch=launch,
            threads=threads,
            seed=seed,
            fields={
                "software": SOFTWARE,
                "machine": describe(),
                "created": f"2026-01-0{launch}T00:00:0{again}.000Z",
                "cell": f"sha256:{threads}{seed}",
            },
        )
        for threads in (1, 2, 3)
        for seed in (0, 1)
        for launch in (1, 2, 3)
        for again in (0, 1)
    ]
    certain, certificates = certify_records([one for one in made if one.request.threads < 3])
    rest = [one for one in made if one.request.threads == 3]
    failed = [record(threads=4, fields={"status": "failed", "reason": f"{n}"}) for n in range(2)]
    return [*certain, *rest, *failed], certificates


@pytest.mark.parametrize("name", tables.FORMATS)
def test_record_order_does_not_change_tables(many, name):
    records, certificates = many

    def all_of(records):
        made = all_tables(records, certificates)
        each = best.reduce_to_best(made, ["framework"])
        shown = [tables.FORMATS[name](each, "throughput")]
        shown += [tables.FORMATS[name](made, columns) for columns in COLUMNS]
        return [*shown, slowdown_tables.FORMATS[name](slowdown.slowdowns(made, ["threads"]))]

    first = all_of(records)
    for seed in range(5):
        random.Random(seed).shuffle(records)
        assert all_of(records) == first


def test_file_order_does_not_change_tables(many, tmp_path):
    records, certificates = many
    shown = set()
    for seed in range(3):
        random.Random(seed).shuffle(records)
        store = Store(tmp_path / str(seed))
        store.prepare()
        for one in records:
            store.add(one)
        if seed == 2:
            store.pack()
        with index.open_index(store, print) as found:
            shown.add(tables.to_json(all_tables([one for _, one in found.select()], certificates)))
    assert len(shown) == 1
