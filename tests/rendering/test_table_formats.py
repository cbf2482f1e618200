"""Tests that texts of records are escaped in every format of a table.

The order of records must not change the tables.
"""

import csv
import html
import io
import json
import random
import re
import sys
import unicodedata
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from tests.sample_records import SOFTWARE, certify_records
from xfbench.analysis import best, slowdown
from xfbench.analysis.leaderboard import build_tables as all_tables
from xfbench.host.machine import describe_machine
from xfbench.rendering import formats, slowdown_tables, tables
from xfbench.store import index
from xfbench.store.results_folder import Store

HOSTILE_TEXTS = [
    "<script>alert(1)</script>",
    "--><img src=x onerror=alert(1)><!--",
    "</td></tr></table><svg onload=alert(1)>",
    "a | b | c\n| x | y |\n### not a heading\n- [x](javascript:alert(1))",
    "![x](http://example.org/x.png) <http://example.org> www.example.org `code` **bold** @someone",
    "\\`code\\` \\*bold\\* \\_a\\_",
    "\\input{/etc/passwd} \\write18{id} $x$ % & # _ ^ ~ { }",
    "\n\\end{tabular}\\input{x}\n",
    "^^5cinput{x}",
    "=cmd|' /C calc'!A0",
    " \t=1+1",
    "@SUM(1)",
    "+1",
    "text; =1+1",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "\u202egnp.exe\u2066\u200f",
    "- item",
    "+ item",
    "1. item",
    "    code",
    "nul\x00nul\r\x0b\x0c\x85\u2028\u2029",
    "Z" + "\u0351" * 500,
    "{{ 7 * 7 }}{% for x in y %}",
    "w" * 5_000,
]
COLUMNS = list(tables.COLUMNS)


@pytest.fixture
def hostile_tables(record):
    """Tables of records that have each hostile text in every text field."""
    valid_records, failed_records = [], []
    for n, text in enumerate(HOSTILE_TEXTS):
        machine = describe_machine().model_copy(
            update={"cpu_model": text, "accelerators": (text,), "microarchitecture": text}
        )
        fields = {"software": SOFTWARE, "machine": machine}
        request_fields = dict.fromkeys(("framework", "kernel", "device", "precision", "data"), text)
        options = {"strategy": text, "strategy_options": ((text, text),), "launcher": text}
        for launch in (1, 2):
            launch_record = record(
                launch=launch,
                fields=fields,
                **request_fields,
                **options,
                ranks=2,
                global_batch_size=4,
                batch_size_per_rank=2,
            )
            observed = launch_record.observed.model_copy(
                update={"framework_version": text, "kernel": text}
            )
            valid_records.append(
                launch_record.model_copy(
                    update={
                        "observed": observed,
                        "source": "measured",
                        "batch_unproven_reason": text,
                    }
                )
            )
        failed_fields = {**fields, "status": "failed", "reason": text, "measurement": None}
        failed_records.append(record(fields=failed_fields, threads=n + 1, **request_fields))
        failed_records.append(
            record(
                fields={**failed_fields, "reason": f"{text} again"}, threads=99, **request_fields
            )
        )
    ranked, certificates = certify_records(valid_records)
    hostile_workloads = [
        failed_record.model_copy(
            update={"request": failed_record.request.model_copy(update={"workload": text})}
        )
        for failed_record, text in zip(failed_records[::2], HOSTILE_TEXTS, strict=True)
    ]
    return all_tables([*ranked, *failed_records, *hostile_workloads], certificates)


def render_all(hostile_tables, name):
    """Yield every kind of table in a format, one table at a time."""
    for columns in ("throughput", "storage"):  # the others add only numbers
        for table in [
            *hostile_tables,
            *best.keep_best_row_per_group(hostile_tables, ["framework", "machine", "strategy"]),
        ]:
            yield tables.FORMATS[name]([table], columns)
    for group_fields in (["framework"], ["machine", "strategy_options"]):
        for table in slowdown.build_slowdown_tables(hostile_tables, group_fields):
            yield slowdown_tables.FORMATS[name]([table])


def control_characters(text):
    """Return the characters that control a terminal or hide text."""
    return [
        character
        for character in text
        if character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")
    ]


@pytest.mark.parametrize("name", tables.FORMATS)
def test_no_format_prints_control_characters_or_endless_text(hostile_tables, name):
    for text in render_all(hostile_tables, name):
        assert not control_characters(text)
        if name in formats.FORMATS:
            assert "w" * 2000 not in text


def test_text_table_has_a_single_line_per_row(hostile_tables):
    for table in hostile_tables:
        lines = tables.to_text([table]).splitlines()
        reasons = {row.reason for row in table.unranked}
        count = 1 + (2 + len(table.rows)) * bool(table.rows)
        count += (1 + 2 + len(table.unranked) + len(reasons)) * bool(table.unranked)
        shown = (*table.rows, *table.unranked)
        speeds = filter(None, (row.images_per_second for row in shown))
        count += any(map(tables._has_range, speeds))  # a note
        small = [row for row in table.rows if row.is_proven_at_small_batches]
        count += bool(small) + len({row.batch_unproven_reason for row in small})  # notes
        assert len(lines) == count


def test_markdown_contains_only_headings_tables_and_text(hostile_tables):
    # The most permissive reader: it allows raw HTML.
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    allowed = {"heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "inline"}
    for text in render_all(hostile_tables, "markdown"):
        cells = [0]
        for token in parser.parse(text):
            assert re.sub("_(open|close)$", "", token.type) in allowed, token
            cells += [0] if token.type == "tr_open" else []
            cells[-1] += token.type in ("td_open", "th_open")
            for child in token.children or ():
                assert child.type in ("text", "text_special"), child
        assert sum(cell_count > 0 for cell_count in cells) == text.count("\n|") - text.count(
            "\n|--"
        )
        assert not re.search(r"https?://|www\.|(?<!\\)@", text)


@pytest.mark.parametrize("text", [*"\\`*_{}[]<>|#~!&@", "://", "www."])
def test_each_special_text_of_markdown_is_escaped(text):
    escaped = formats.FORMATS["markdown"].escape_field(f"a{text}b")
    assert (escaped == f"a\\{text}b") == (text in "\\`*_{}[]|#~!")
    assert text == "&" or f"a{text}b" not in escaped
    assert html.unescape(escaped).replace("\\", "") == f"a{text}b".replace("\\", "")


@pytest.mark.parametrize("rest", ["word", ""])
@pytest.mark.parametrize("start", ["-", "+", "#", ">", "===", "1.", "2)", "---"])
def test_no_line_of_a_wrapped_paragraph_starts_another_block(start, rest):
    text = formats.wrap_markdown(f"{'word ' * 18}wordwor {start} {rest}".strip())
    assert text.splitlines()[1].replace("\\", "") == f"{start} {rest}".strip()
    tokens = MarkdownIt("commonmark").parse(text)
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]


@pytest.mark.parametrize("text", "&%$#_{}<>\\^~[]*")
def test_each_special_character_of_latex_is_escaped(text):
    assert f"a{text}b" not in formats.escape_latex(f"a{text}b")


class TagCollector(HTMLParser):
    """A collector of tags, attributes, comments and declarations."""

    def __init__(self):
        super().__init__()
        self.tags, self.non_tags = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.non_tags += attrs

    def handle_comment(self, data):
        self.non_tags.append(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def test_html_contains_only_tables_headings_and_text(hostile_tables):
    for text in render_all(hostile_tables, "html"):
        collector = TagCollector()
        collector.feed(text)
        assert collector.tags <= {"table", "thead", "tbody", "tr", "th", "td", "h3", "p"}
        assert collector.non_tags == []


def test_facts_and_lines_of_a_terminal_are_escaped_and_shortened():
    hostile = "\x1b[31m\u202e" + "w" * 5000
    for text in (
        formats.render_facts({"name": hostile}, 8, 80),
        formats.wrap_line(hostile, 80),
        formats.render_listing(["a"], [[hostile]], 80),
    ):
        assert "\\x1b" in text and not control_characters(text) and text.count("w") < 1100


def test_bars_and_controls_in_a_table_of_markdown_are_escaped():
    text = formats.markdown_table(["a|b"], [["x|\x1b[2J\n"]])
    assert text.replace("\\|", "").count("|") == 2 * 3 and not control_characters(text)


def test_title_in_latex_is_escaped():
    text = formats.FORMATS["latex"].render_table(["a"], [["1"]], "\\input{x}\x1b[2J")
    assert "\\input" not in text and "\x1b" not in text and "backslash" in text


def test_notes_of_latex_belong_to_the_float_of_their_table():
    latex = formats.FORMATS["latex"]
    notes = [latex.render_note("one"), latex.render_note("two")]
    table = latex.render_table(["a"], [["1"]], "title")
    text = latex.join([table, *notes, table])
    first, second, rest = text.split("\\end{table}")
    assert "one" in first and "two" in first and "one" not in second + rest


def test_latex_contains_only_allowed_commands(hostile_tables):
    allowed_commands = {"begin", "end", "toprule", "midrule", "bottomrule", "par", "footnotesize"}
    allowed_commands |= {"textbackslash", "textasciitilde", "ensuremath", "backslash"}
    allowed_commands |= {"caption", "centering", "label", "num", "numrange"}
    for text in render_all(hostile_tables, "latex"):
        for line in text.splitlines():
            if line.startswith("%"):
                continue
            assert set(re.findall(r"\\([a-zA-Z]+)", line)) <= allowed_commands
            assert not re.search(r"(?<!\\)[%#_]|\^(?!\{)", line)
        content = re.sub("^%.*$", "", text, flags=re.MULTILINE)
        environments = re.findall(r"\\(begin|end)\{(.*?)\}", content)
        table = [("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table")]
        assert environments == table * (len(environments) // 4)


def test_csv_contains_no_spreadsheet_formulas(hostile_tables):
    for text in render_all(hostile_tables, "csv"):
        for line in csv.DictReader(io.StringIO(text)):
            assert not any(re.search(r"(^|;)\s*[=+\-@]", field) for field in line.values())


def test_json_is_ascii_and_keeps_the_text(hostile_tables):
    for text in render_all(hostile_tables, "json"):
        assert text.isascii()
    document = json.loads(tables.to_json(hostile_tables))
    assert {table["device"] for table in document["tables"]} == set(HOSTILE_TEXTS)


@pytest.fixture
def many_records(record):
    """Records of four ranked, two unranked and one failed configuration; each launch twice."""
    records = [
        record(
            steps=(0.1 + 0.001 * launch + repeat / 3000,) * 3,
            launch=launch,
            threads=threads,
            seed=seed,
            fields={
                "software": SOFTWARE,
                "machine": describe_machine(),
                "created": f"2026-01-0{launch}T00:00:0{repeat}.000Z",
                "cell": f"sha256:{threads}{seed}",
            },
        )
        for threads in (1, 2, 3)
        for seed in (0, 1)
        for launch in (1, 2, 3)
        for repeat in (0, 1)
    ]
    ranked, certificates = certify_records(
        [record_of_cell for record_of_cell in records if record_of_cell.request.threads < 3]
    )
    unranked = [record_of_cell for record_of_cell in records if record_of_cell.request.threads == 3]
    failed = [record(threads=4, fields={"status": "failed", "reason": f"{n}"}) for n in range(2)]
    return [*ranked, *unranked, *failed], certificates


@pytest.mark.parametrize("name", tables.FORMATS)
def test_record_order_does_not_change_tables(many_records, name):
    records, certificates = many_records

    def render_tables(records):
        all_rows = all_tables(records, certificates)
        best_tables = best.keep_best_row_per_group(all_rows, ["framework"])
        rendered = [tables.FORMATS[name](best_tables, "throughput")]
        rendered += [tables.FORMATS[name](all_rows, columns) for columns in COLUMNS]
        return [
            *rendered,
            slowdown_tables.FORMATS[name](slowdown.build_slowdown_tables(all_rows, ["threads"])),
        ]

    first = render_tables(records)
    for seed in range(5):
        random.Random(seed).shuffle(records)
        assert render_tables(records) == first


def test_file_order_does_not_change_tables(many_records, tmp_path):
    records, certificates = many_records
    rendered = set()
    for seed in range(3):
        random.Random(seed).shuffle(records)
        store = Store(tmp_path / str(seed))
        store.create_and_check_folders()
        for stored_record in records:
            store.add(stored_record)
        if seed == 2:
            store.pack()
        with index.open_index(store, print) as record_index:
            rendered.add(
                tables.to_json(
                    all_tables(
                        [indexed_record for _, indexed_record in record_index.select()],
                        certificates,
                    )
                )
            )
    assert len(rendered) == 1


def test_latex_table_has_a_caption_a_label_and_aligned_numbers(many_records):
    records, certificates = many_records
    text = tables.FORMATS["latex"](all_tables(records, certificates), "throughput")
    assert re.search(
        r"\\caption\{Training .* of lenet .*\}\n\\label\{tab:xfbench-lenet-[a-z0-9-]+\}", text
    )
    [alignment, *_] = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    headers = text[text.index("\\toprule") :].splitlines()[1].split(" & ")
    assert alignment[headers.index("images/s")] == "r"
    assert alignment[headers.index("framework")] == "l"
    assert re.search(r"\\num\{[\d.]+\} \(\\numrange\{[\d.]+\}\{[\d.]+\}\)", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 600 (1 640–2 860)", r"\num{2600} (\numrange{1640}{2860})"),
        ("58% (37%–64%)", r"\num{58}\% (\numrange{37}{64}\%)"),
        ("1.00", r"\num{1.00}"),
        ("–", "–"),
        ("2.13.0+cpu", "2.13.0+cpu"),
        ("5 (claim)", "5 (claim)"),
    ],
)
def test_numbers_in_latex_are_formatted_by_siunitx(text, expected):
    assert formats._format_latex_field(text) == expected


def test_blocks_of_markdown_are_wrapped_and_apart():
    long_item = "- " + "word " * 40
    text = formats.join_markdown_blocks(["Before:", "- one", long_item.strip(), "After.", "- two"])
    assert max(map(len, text.splitlines())) <= formats.MARKDOWN_WIDTH
    html = MarkdownIt().render(text)
    assert html.count("<ul>") == 2
    assert html.count("<li>") == 3


def test_columns_stay_aligned_when_an_encoding_lacks_characters(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    lines = [["a ± b", "first"], ["a b", "second"]]
    _, _, *rows = formats.FORMATS["text"].render_table(["name", "value"], lines).splitlines()
    assert rows[0].startswith("a +- b ")
    assert rows[0].index("first") == rows[1].index("second")
