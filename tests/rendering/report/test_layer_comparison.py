"""Tests of the report's comparison of the layers of two rows, some of them in a real browser."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.rendering.report.hostile_records import HOSTILE_TEXTS, poison_record
from tests.sample_records import vary_record
from xfbench.analysis.profiles import build_profile
from xfbench.model.record import Limit
from xfbench.rendering.report import content, layer_comparison, page
from xfbench.store.results_folder import Store

# Seconds of a LeNet step by part. Together the operations take 0.08 s.
PARTS_S = {
    "step": 0.1,
    "update": 0.01,
    "other": 0.0,
    "forward/conv1": 0.01,
    "backward/conv1": 0.02,
    "forward/conv2": 0.015,
    "backward/conv2": 0.02,
    "forward/pool1": 0.002,
    "backward/pool1": 0.003,
}
LIMIT = Limit(
    threads=1,
    precision="float32",
    matrix_product=1e10,
    memory_bandwidth=1e9,
    source="measured",
)
REAL_CELLS = ["--framework", "torch,mxnet", "--workload", "lenet,convnet", "--threads", "1"]
REAL_LENGTH = ["--batch-size", "8", "--steps", "4", "--warmup", "1", "--launches", "1"]
ROWS = "#why-faster [data-part=matched] tbody tr"
# The comparison as HTML, without the whitespace between tags.
COMPARISON_HTML = """() => [...document.querySelectorAll(
  "#why-faster dl, #why-faster [data-part], #why-faster [data-note]")].map(
  element => element.outerHTML.replace(/>\\s+</g, "><").trim())"""


@pytest.fixture
def profiled(record):
    """Return a function that makes a profiled launch: PARTS_S, changed by `parts`, times `scale`.

    `parts` of None has no profile.
    """

    def make_profiled(parts, scale=1.0, step_s=0.08, fields=None, **request):
        launch = record(steps=(scale * step_s,) * 5, **request)
        seconds = {} if parts is None else {**PARTS_S, **parts}
        phases = {f"profile/{name}": scale * part_s for name, part_s in seconds.items()}
        observed = {"profiler": None if parts is None else "a profiler 1.0"}
        return vary_record(
            launch,
            measurement=launch.measurement.model_copy(update={"phases": phases}),
            observed=launch.observed.model_copy(update=observed),
            **{"limit": LIMIT, **(fields or {})},
        )

    return make_profiled


@pytest.fixture(scope="module")
def real_profiles(tmp_path_factory):
    """Records of four real launches with a profile: two frameworks, each with two networks."""
    folder = tmp_path_factory.mktemp("profiles") / "results"
    command = [sys.executable, "-m", "xfbench", "run", *REAL_CELLS, *REAL_LENGTH]
    completed = subprocess.run(
        [*command, "--profile", "--no-verify", "--results", folder],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return list(Store(folder).records())


def build_comparison(records):
    return layer_comparison.build_comparison(content.build_report(records, {}).networks)


def fields_by_layer(comparison):
    return {line.fields[0]: line.fields[1:] for line in comparison.matched_lines}


def test_layers_are_side_by_side_with_shares_of_the_difference(profiled):
    """B takes 0.07 s longer in conv2, 0.02 s in update and between operations, less in conv1."""
    slower = {"step": 0.2, "forward/conv2": 0.085, "update": 0.03, "backward/conv1": 0.01}
    launches = [
        profiled(slower, framework="caffe", step_s=0.15),
        profiled({}, framework="torch"),
        profiled(None, framework="mxnet", step_s=0.01),
    ]
    comparison = build_comparison(launches)
    assert [row.name.split()[0] for row in comparison.pair] == ["torch", "caffe"]
    assert len(comparison.rows) == 2 and comparison.notes == set()
    # LeNet's batch has 4 images.
    assert comparison.verdict == (
        "A step takes 20,000 µs per image in A and 37,500 µs in B. "
        "With a profiler, it takes 25,000 µs in A and 50,000 µs in B."
    )
    lines = fields_by_layer(comparison)
    assert next(iter(lines)) == "conv2"
    assert lines["conv2"][:5] == ("Convolution", "8,750", "26,300", "3", "70%")
    assert lines["conv1"][:5] == ("Convolution", "7,500", "5,000", "0.667", "-10%")
    assert lines["pool1"][:5] == ("Pooling", "1,250", "1,250", "1", "0%")
    assert lines["update"][:5] == ("–", "2,500", "7,500", "3", "20%")
    assert lines["ip1"][1:5] == ("–", "–", "–", "0%")
    bars = {line.fields[0]: float(line.bar) for line in comparison.matched_lines}
    assert bars["conv2"] == 100 and bars["conv1"] == pytest.approx(-100 / 7, abs=0.1)
    assert sum(int(fields[4].rstrip("%")) for fields in lines.values()) == 100
    assert comparison.matched_total.fields[2:6] == ("25,000", "50,000", "2", "100%")


def test_limits_are_of_arithmetic_or_of_memory(profiled):
    launch = profiled({}, framework="torch")
    comparison = build_comparison([launch, profiled({}, framework="caffe", scale=2)])
    lines = fields_by_layer(comparison)
    # conv2: 50 maps of 8x8 pixels, from 20 maps with 5x5 kernels, three times for four images.
    conv2_share = 2 * 50 * 8**2 * 20 * 25 * 3 * 4 / 0.035 / 1e10
    assert lines["conv2"][5:] == (f"{conv2_share:.0%} FLOP/s", f"{conv2_share / 2:.0%} FLOP/s")
    # pool1: 20 maps of 24x24 pixels become 12x12, twice for four images of 4 bytes per value.
    pool1_share = 2 * 20 * (24**2 + 12**2) * 4 * 4 / 0.005 / 1e9
    assert lines["pool1"][5:] == (f"{pool1_share:.0%} B/s", f"{pool1_share / 2:.0%} B/s")
    layers = {layer.layer: layer for layer in build_profile([launch]).layers}
    assert layers["pool1"].share_of_bandwidth == pytest.approx(pool1_share)
    assert layers["conv2"].bytes_per_second is None and layers["pool1"].flops is None
    unlimited = [
        profiled({}, framework=name, scale=scale, fields={"limit": None})
        for name, scale in (("torch", 1), ("caffe", 2))
    ]
    assert {fields[5] for fields in fields_by_layer(build_comparison(unlimited)).values()} == {"–"}


def test_bytes_of_16_bit_precisions_are_unknown(profiled):
    launch = profiled({}, precision="bfloat16")
    assert {layer.bytes_per_second for layer in build_profile([launch]).layers} == {None}


def test_overlapping_operations_are_a_negative_rest(profiled):
    """The operations of B take 0.19 s in a step of 0.15 s."""
    overlapping = {"step": 0.15, "forward/conv2": 0.125}
    launches = [profiled({}), profiled(overlapping, framework="caffe", step_s=0.12)]
    lines = fields_by_layer(build_comparison(launches))
    rest = lines["between operations, less overlap"]
    assert rest[1:5] == ("5,000", "-10,000", "–", "-120%")
    assert lines["conv2"][4] == "220%"


def test_operations_of_one_profile_only_are_not_matched_with_others(profiled):
    """A framework that fuses pool1 into conv1 shows no time of pool1."""
    fused = {"forward/pool1": 0.0, "backward/pool1": 0.0, "forward/conv1": 0.03, "step": 0.2}
    launches = [profiled({}), profiled(fused, framework="caffe", step_s=0.16)]
    lines = fields_by_layer(build_comparison(launches))
    assert lines["pool1"][1:4] == ("1,250", "–", "–")


def test_different_definitions_of_a_network_are_listed_separately(profiled):
    workload = profiled({}).workload.model_copy(update={"digest": "sha256:another"})
    changed = profiled({}, scale=2, framework="caffe", fields={"workload": workload})
    comparison = build_comparison([profiled({}), changed])
    assert comparison.notes == {"unmatched"} and comparison.matched_lines == []
    names = [[line.fields[0] for line in lines] for lines in comparison.separate_lines]
    assert names[0][:3] == ["conv2", "conv1", "between operations, less overlap"]
    assert "ip1" in names[0] and "ip1" not in names[1]
    html = page.render_report([profiled({}), changed], {})
    assert "Layers of B, longest time first" in html


def test_notes_say_when_a_profile_explains_nothing(profiled):
    equal = [profiled({}, framework="torch"), profiled({"step": 0.1005}, framework="caffe")]
    comparison = build_comparison(equal)
    assert "equal" in comparison.notes
    assert {fields[4] for fields in fields_by_layer(comparison).values()} == {"–"}
    opposite = [
        profiled({}, framework="torch", step_s=0.02),
        profiled({"step": 0.05}, framework="caffe", step_s=0.04),
    ]
    comparison = build_comparison(opposite)
    assert comparison.notes == {"opposite"}
    assert {fields[4] for fields in fields_by_layer(comparison).values()} == {"–"}
    larger_batch = {"batch_size_per_rank": 8, "global_batch_size": 8}
    boards = [
        profiled({}, framework="torch"),
        profiled({}, framework="torch", scale=2, **larger_batch),
    ]
    comparison = build_comparison(boards)
    assert comparison.notes == {"boards", "equal"} and len(comparison.boards) == 2


@pytest.mark.parametrize(
    ("profiled_step_s", "notes"), [(0.119, set()), (0.131, {"profilers"}), (0.169, {"profilers"})]
)
def test_a_difference_that_profilers_change_by_half_is_not_divided(
    profiled, profiled_step_s, notes
):
    """The timed steps differ by 0.02 s, those of the profilers by 0.019, 0.031 and 0.069 s."""
    launches = [
        profiled({}, framework="torch", step_s=0.08),
        profiled({"step": profiled_step_s}, framework="caffe", step_s=0.1),
    ]
    comparison = build_comparison(launches)
    assert comparison.notes == notes
    shares = {fields[4] for fields in fields_by_layer(comparison).values()}
    assert (shares == {"–"}) == bool(notes)
    assert (comparison.matched_total.fields[5] == "–") == bool(notes)


def test_a_difference_of_rows_without_timed_steps_is_not_divided(profiled):
    launches = [profiled({}, framework="torch"), profiled({"step": 0.2}, framework="caffe")]
    comparison = build_comparison(launches)
    rows = tuple(replace(row, images_per_second=0.0) for row in comparison.rows)
    untimed = replace(comparison, rows=rows)
    assert untimed.notes == {"untimed"} and untimed.verdict.startswith("A step takes – µs")
    assert {fields[4] for fields in fields_by_layer(untimed).values()} == {"–"}


def test_the_first_pair_is_one_whose_difference_is_divided(profiled):
    launches = [
        profiled({}, framework="torch", step_s=0.08),
        profiled({"step": 0.2}, framework="caffe", step_s=0.1),
        profiled({"step": 0.15}, framework="mxnet", step_s=0.13),
    ]
    comparison = build_comparison(launches)
    assert [row.name.split()[0] for row in comparison.pair] == ["torch", "mxnet"]


def test_ranked_rows_are_compared_before_faster_unranked_rows(profiled):
    launches = [profiled({}, framework="torch", scale=n, threads=n) for n in (1, 2, 3)]
    unranked, *ranked = build_comparison(launches).rows
    assert unranked.name.endswith("(not ranked)") and "not ranked: no equality" in unranked.details
    rows = [unranked, *(replace(row, is_ranked=True) for row in ranked)]
    assert layer_comparison._choose_first_pair(rows, ["lenet"] * 3) == (1, 2)


def test_rows_of_one_leaderboard_are_compared_first(profiled):
    """The fastest row belongs to another leaderboard, in which no other row has a profile."""
    larger_batch = {"batch_size_per_rank": 8, "global_batch_size": 8}
    launches = [
        profiled({}, framework="torch", scale=0.5, **larger_batch),
        *(profiled({}, framework="torch", scale=n, threads=n) for n in (3, 1, 2)),
    ]
    comparison = build_comparison(launches)
    assert [
        row.name.rpartition("·")[2].strip().removesuffix(" (not ranked)") for row in comparison.pair
    ] == [
        "1 thread",
        "2 threads",
    ]
    assert len(comparison.rows) == 4


def test_too_few_profiles_give_the_exact_commands(profiled, run_inline):
    launches = [
        profiled({}, framework="torch", kernel="onednn", scale=3),
        profiled(None, framework="mxnet", kernel="onednn", scale=2),
        profiled(None, framework="caffe", kernel="openblas"),
    ]
    comparison = build_comparison(launches)
    assert comparison.first_pair == () and comparison.rows == ()
    [command] = comparison.commands
    assert command.parts[-2:] == ("--launches 1", "--profile")
    program, *words = " ".join(command.parts).split()
    assert program == "xfbench"
    completed = run_inline(*words, "--dry-run", "--json")
    assert completed.returncode == 0, completed.stderr
    [request] = json.loads(completed.stdout)["requests"]
    assert request["framework"] == "caffe" and request["profile"]
    html = page.render_report(launches, {})
    assert "Too few rows have a profile" in html and "application/json" not in html


@pytest.mark.parametrize(("name", "workload"), [("convnet", "convnet"), ("a;b", "lenet")])
def test_the_only_row_of_a_network_gives_an_example_command(profiled, name, workload):
    launch = profiled({}, framework="torch")
    request = launch.request.model_copy(update={"workload": name})
    comparison = build_comparison([launch.model_copy(update={"request": request})])
    command = " ".join(comparison.example_command)
    assert comparison.commands == ()
    assert command == (
        f"xfbench run --framework torch,mxnet --workload {workload} --launches 1 --profile"
    )


def test_rows_that_cannot_be_profiled_have_no_command(profiled):
    refused = profiled(None, framework="reference")
    observed = refused.observed.model_copy(update={"profiler": "none: the adapter has no profiler"})
    launches = [
        vary_record(refused, observed=observed),
        profiled(None, framework="torch", kernel="onednn", scale=2),
    ]
    comparison = build_comparison(launches)
    assert [command.name.split()[0] for command in comparison.commands] == ["torch"]
    [refusal] = comparison.refusals
    assert refusal.startswith("reference") and refusal.endswith(": the adapter has no profiler")


def test_a_page_offers_a_limited_number_of_rows(profiled):
    count = layer_comparison.MAX_ROWS + 5
    launches = [profiled({}, threads=threads, scale=threads) for threads in range(1, count + 1)]
    comparison = build_comparison(launches)
    assert len(comparison.rows) == layer_comparison.MAX_ROWS and comparison.omitted_rows == 5
    assert "1 thread" in comparison.rows[0].name


def test_report_without_records_has_no_comparison():
    assert 'id="why-faster"' not in page.render_report([], {})


@pytest.mark.deep
def test_real_profiles_are_compared_by_the_same_layers(real_profiles):
    comparison = build_comparison(real_profiles)
    a, b = comparison.pair
    assert "unmatched" not in comparison.notes and a.board == b.board
    lines = fields_by_layer(comparison).values()
    with_weights = [fields for fields in lines if fields[0] in ("Convolution", "InnerProduct")]
    assert len(with_weights) >= 4
    for fields in with_weights:
        assert "–" not in fields[1:4], fields
        assert all(limit.endswith("% FLOP/s") for limit in fields[5:]), fields
    assert any(limit.endswith("% B/s") for fields in lines for limit in fields[5:])
    for row in comparison.rows:
        assert sum(row.times) == pytest.approx(row.step, rel=0.01)


@pytest.mark.deep
def test_the_script_shows_what_the_page_shows_without_it(open_report, real_profiles):
    """By keyboard, the reader compares the rows the other way round and then as before."""
    static_page = open_report(real_profiles, java_script_enabled=False)
    assert static_page.locator(ROWS).first.is_visible()
    assert not static_page.locator("#why-faster select").first.is_visible()
    report_page = open_report(real_profiles)
    first_html = report_page.evaluate(COMPARISON_HTML)
    first_rows = report_page.locator(ROWS).all_inner_texts()
    selects = [report_page.get_by_label(name, exact=True) for name in "AB"]
    assert [select.input_value() for select in selects] == ["0", "1"]
    for select, key in zip(selects, ("ArrowDown", "ArrowUp"), strict=True):
        select.focus()
        report_page.keyboard.press(key)
    assert [select.input_value() for select in selects] == ["1", "0"]
    assert report_page.locator(ROWS).all_inner_texts() != first_rows
    assert report_page.locator("#why-faster svg.delta:visible").count() == len(first_rows)
    for select, key in zip(selects, ("ArrowUp", "ArrowDown"), strict=True):
        select.focus()
        report_page.keyboard.press(key)
    assert report_page.evaluate(COMPARISON_HTML) == first_html


@pytest.mark.deep
def test_rows_of_different_networks_are_listed_separately(open_report, real_profiles):
    report_page = open_report(real_profiles)
    networks = report_page.locator("#why-faster select").first.locator("optgroup")
    assert networks.count() == 2
    report_page.get_by_label("B", exact=True).select_option("2")
    assert report_page.get_by_text("Their layers are not matched").is_visible()
    assert not report_page.locator("[data-part=matched]").is_visible()
    for letter in "AB":
        table = report_page.get_by_role("group", name=f"Layers of {letter}", exact=True)
        assert table.locator("tbody tr").count() > 8
    report_page.get_by_label("A", exact=True).select_option("3")
    assert report_page.locator("[data-part=matched]").is_visible()
    assert not report_page.locator("[data-part=separate]").is_visible()


@pytest.mark.deep
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_comparison_fits_a_phone(open_report, real_profiles, scheme):
    report_page = open_report(
        real_profiles, viewport={"width": 390, "height": 844}, color_scheme=scheme
    )
    assert report_page.evaluate("document.documentElement.scrollWidth") <= 390
    for select in report_page.locator("#why-faster select").all():
        box = select.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    fills = report_page.locator(
        "#why-faster .delta .slower, #why-faster .delta .faster"
    ).evaluate_all("paths => paths.map(path => getComputedStyle(path).fill)")
    assert set(fills) and "rgb(0, 0, 0)" not in fills


@pytest.mark.deep
def test_print_shows_the_compared_rows_without_controls(open_report, profiled):
    parts = {f"forward/layer {n}": 0.001 * n for n in range(1, 31)}
    workload = profiled({}).workload.model_copy(update={"digest": "sha256:another"})
    launches = [
        profiled(parts, scale=scale, framework=name, fields={"workload": workload})
        for scale, name in ((1, "torch"), (2, "caffe"))
    ]
    report_page = open_report(launches)
    rows = report_page.locator(f"{ROWS}:visible")
    assert rows.count() == layer_comparison.SHOWN_LINES
    report_page.emulate_media(media="print")
    assert rows.count() == 3 + 30 + 3
    assert not report_page.locator("form.choice").is_visible()
    assert report_page.locator("[data-part=b] b").inner_text().startswith("caffe")
    report_page.emulate_media(media="screen")
    report_page.get_by_role("button", name="Show all layers").click()
    assert rows.count() == 3 + 30 + 3


@pytest.mark.deep
def test_hostile_names_are_harmless_in_the_comparison(open_report, measured):
    launches = []
    for text in HOSTILE_TEXTS:
        phases = {"profile/step": 0.1, f"profile/forward/{text[:5000]}": 0.01}
        measurement = measured[0].measurement.model_copy(update={"phases": phases})
        poisoned = poison_record(vary_record(measured[0], measurement=measurement), text)
        workload = poisoned.workload.model_copy(update={"digest": "sha256:another"})
        launches += [
            poisoned.model_copy(
                update={
                    "workload": workload,
                    "id": f"sha256:{number}{text[:50]}",
                    "cell": f"{number}{text[:50]}",
                    "request": poisoned.request.model_copy(
                        update={"workload": "lenet", "threads": number}
                    ),
                }
            )
            for number in (1, 2)
        ]
    report_page = open_report(launches)
    assert report_page.locator("script").count() == 2
    count = report_page.get_by_label("A", exact=True).locator("option").count()
    assert count >= 2
    for number in range(count):
        report_page.get_by_label("A", exact=True).select_option(str(number))
    assert report_page.evaluate("window.owned") is None
    assert report_page.locator("img, iframe, object, embed").count() == 0
    assert len(report_page.content()) < 1_500_000


@pytest.mark.deep
@pytest.mark.parametrize("boards", [1, 20])
def test_two_thousand_profiled_cells_are_under_five_megabytes(open_report, profiled, boards):
    launches = [
        profiled(
            {},
            scale=1 + threads % 97,
            threads=threads,
            framework=name,
            batch_size_per_rank=size,
            global_batch_size=size,
        )
        for size in range(1, boards + 1)
        for name in ("caffe", "mxnet", "tensorflow", "torch")
        for threads in range(1, 500 // boards + 1)
    ]
    report_page = open_report(launches)
    assert len(report_page.content().encode()) < 5e6
    options = report_page.get_by_label("A", exact=True).locator("option")
    assert options.count() == layer_comparison.MAX_ROWS
    assert report_page.get_by_text("1,800 more rows have a profile").is_visible()
