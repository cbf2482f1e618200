"""Tables for papers: pdflatex compiles them, they fit an article, and captions explain them."""

import re
import subprocess
from pathlib import Path

import pytest

from tests import debian

ROOT = Path(__file__).parents[2]
ARCHIVES = {
    "records": "docs/example/records.tar.gz",
    "profiles": "docs/example/profiles.tar.gz",
    "columns": "docs/columns.tar.gz",
    "strong-scaling": "docs/laptop/strong-scaling.tar.gz",
}


@pytest.fixture
def print_latex(run_inline):
    """Return a function that imports an archive and prints its leaderboards in LaTeX."""

    def print_tables(archive, *options):
        imported = run_inline("results", "import", str(ROOT / ARCHIVES[archive]))
        assert imported.returncode == 0, imported.stderr
        return run_inline("leaderboard", "--format", "latex", *options)

    return print_tables


@pytest.fixture
def pdflatex():
    """Debian's pdfLaTeX with siunitx and booktabs."""
    packages = ["texlive-latex-recommended", "texlive-science"]
    if reason := debian.install_missing(["pdflatex"], packages, ["siunitx.sty", "booktabs.sty"]):
        debian.skip_test(reason)
    return "pdflatex"


@pytest.fixture
def compile_article(pdflatex, tmp_path):
    """Return a function that compiles tables in an article, of which no line may be too wide."""

    def compile_tables(latex):
        preamble = latex.splitlines()[0].removeprefix("% In the preamble: ")
        (tmp_path / "paper.tex").write_text(
            "\n".join(
                [
                    *(r"\documentclass{article}", preamble, r"\begin{document}"),
                    # More than a few floats without text between them are an error.
                    latex.replace(r"\end{table}", "\\end{table}\n\\clearpage"),
                    r"\end{document}",
                ]
            )
        )
        compiled = subprocess.run(
            [pdflatex, "-halt-on-error", "-interaction=nonstopmode", "paper.tex"],
            cwd=tmp_path,
            capture_output=True,
            timeout=300,
            check=False,
        )
        log = (tmp_path / "paper.log").read_text(errors="replace")
        assert compiled.returncode == 0, log[-2000:]
        overfull = [line for line in log.splitlines() if line.startswith("Overfull \\hbox")]
        assert overfull == []

    return compile_tables


@pytest.mark.deep
@pytest.mark.parametrize(
    ("archive", "options"),
    [
        ("records", ""),
        ("records", "--by framework"),
        ("records", "--view slowdown --reference best"),
        ("records", "--view costs"),
        ("records", "--published"),
        ("columns", ""),
        ("columns", "--view steps"),
        ("columns", "--workload lenet --fields framework,kernel,images/s,launches"),
        ("columns", "--view slowdown --reference torch"),
        ("profiles", "--view layers"),
        ("strong-scaling", ""),
        ("strong-scaling", "--view communication"),
    ],
)
def test_no_table_is_wider_than_the_lines_of_an_article(
    compile_article, print_latex, archive, options
):
    latex = print_latex(archive, *options.split())
    assert latex.returncode == 0 and "\\begin{tabular}" in latex.stdout, latex.stderr
    compile_article(latex.stdout)


@pytest.mark.deep
@pytest.mark.parametrize(
    "name", ["kernels", "framework-slowdown", "hpc-support", "batch-size", "parameter-servers"]
)
def test_no_table_of_a_study_is_wider_than_the_lines_of_an_article(
    compile_article, run_inline, tmp_path, name
):
    words = ["study", "report", name, "--with", ROOT / ARCHIVES["records"], "--output", "s.tex"]
    outcome = run_inline(*words)
    assert outcome.returncode == 0, outcome.stderr
    compile_article((tmp_path / "s.tex").read_text())


def read_captions(latex):
    return [line for line in latex.splitlines() if line.startswith("\\caption{")]


def test_a_caption_says_in_sentences_what_was_measured(print_latex):
    shown = print_latex("columns", "--workload", "lenet").stdout
    [caption] = read_captions(shown)
    assert caption == (
        "\\caption{Training throughput in images/s of lenet on the data set digits in float32, "
        "with a batch of 64 images. The machine has 2 cores Intel(R) Xeon(R) Processor (icelake); "
        "training ran on its CPU. The frameworks are tensorflow 2.21.0 (kernel library onednn), "
        "torch 2.13.0+cpu (kernel library onednn), jax 0.10.2 (kernel library xla), "
        "ipex 2.8.0+cpu (kernel library channels\\_last), "
        "reference 2.4.6 (kernel library numpy), mxnet 1.9.1 (kernel library onednn) and "
        "caffe 1.0.0 (kernel library openblas), with 2 threads. Each row has 5 launches in fresh "
        "processes. images/s is the median launch. The brackets of 5 launches or more are its "
        "95 \\% confidence interval.}"
    )
    assert shown.count("95 \\% confidence interval.") == 1  # not again in a note
    assert "framework & images/s & of best & launches \\\\" in shown
    assert "indicative: the interval is wider" in shown and "(claim)" not in shown
    assert "Not shown" not in shown


def test_settings_that_no_chosen_column_shows_are_in_the_caption(print_latex):
    fields = ("--workload", "lenet", "--fields", "framework,kernel,images/s")
    [caption] = read_captions(print_latex("columns", *fields).stdout)
    assert "caffe 1.0.0, with 2 threads." in caption and "mxnet 1.9.1 and" in caption


def test_few_launches_are_said_to_be_ranges_once(print_latex):
    options = "--workload lenet --where data=synthetic --where global_batch_size=64"
    shown = print_latex("records", *options.split()).stdout
    for caption in read_captions(shown):
        assert caption.endswith("are their range, which is no 95 \\% interval.}")
    assert shown.count("no 95 \\% interval") == len(read_captions(shown)) > 0
    assert "fewer than 5 launches support no claim" in shown


def test_a_caption_of_slowdowns_has_versions_and_launches(print_latex):
    latex = print_latex("columns", "--workload", "lenet", "--view", "slowdown").stdout
    caption = read_captions(latex)[0]
    assert "caffe 1.0.0" in caption and "torch 2.13.0+cpu" in caption
    assert "Each figure has 5 launches in fresh processes." in caption


@pytest.mark.parametrize("view", ["throughput", "slowdown"])
def test_a_caption_of_the_user_replaces_the_sentences(print_latex, view):
    text = r"My \emph{caption}~\cite{x}."
    options = ("--workload", "lenet", "--view", view, "--caption", text)
    shown = print_latex("columns", *options).stdout
    assert read_captions(shown)[0] == rf"\caption{{{text}}}"
    if view == "throughput":
        assert "95 \\% confidence interval.\\par" in shown  # now in a note


def test_a_caption_needs_one_table_in_latex(print_latex, run_inline):
    refused = print_latex("columns", "--caption", "x")
    assert refused.returncode == 2 and "--caption needs one table (got 2)" in refused.stderr
    refused = run_inline("leaderboard", "--caption", "x")
    assert refused.returncode == 2 and "--caption needs --format latex" in refused.stderr


def read_labels(latex):
    return re.findall(r"^\\label\{(.*)\}$", latex, re.MULTILINE)


def test_labels_are_short_and_name_neither_machine_nor_versions(print_latex):
    assert read_labels(print_latex("columns").stdout) == [
        *("tab:xfbench-convnet-cpu", "tab:xfbench-lenet-cpu")
    ]
    by_framework = print_latex("columns", "--view", "steps", "--by", "framework").stdout
    assert read_labels(by_framework)[1] == "tab:xfbench-lenet-steps-cpu-by-framework"
    slowdowns = read_labels(print_latex("columns", "--view", "slowdown").stdout)
    assert (slowdowns[0], slowdowns[-1]) == (
        *("tab:xfbench-slowdown-cpu", "tab:xfbench-slowdown-cpu-settings"),
    )
    layers = read_labels(print_latex("profiles", "--view", "layers").stdout)
    assert layers[:2] == [
        *("tab:xfbench-convnet-layers-cpu", "tab:xfbench-convnet-layers-cpu-part-2")
    ]


@pytest.mark.parametrize("options", ["--published", "--view slowdown"])
def test_all_labels_of_one_output_are_different(print_latex, run_inline, options):
    for archive in ("columns", "profiles", "strong-scaling"):
        imported = run_inline("results", "import", str(ROOT / ARCHIVES[archive]))
        assert imported.returncode == 0, imported.stderr
    labels = read_labels(print_latex("records", *options.split()).stdout)
    assert len(set(labels)) == len(labels) > 10
    if options == "--published":
        assert "tab:xfbench-lenet-cpu-synthetic-batch-64" in labels
        assert "tab:xfbench-convnet-cpu-synthetic-batch-100-2" in labels  # another machine
        assert "tab:xfbench-lenet-published" in labels


@pytest.mark.parametrize("view", ["throughput", "slowdown", "layers"])
def test_a_label_of_the_user_replaces_the_name(print_latex, view):
    archive, workload = ("profiles", "convnet") if view == "layers" else ("columns", "lenet")
    options = ("--workload", workload, "--view", view, "--label", "tab:speed_1")
    assert read_labels(print_latex(archive, *options).stdout)[0] == "tab:speed_1"


def test_a_label_needs_one_table_in_latex_and_plain_characters(print_latex, run_inline):
    refused = print_latex("columns", "--label", "x")
    assert refused.returncode == 2 and "--label needs one table (got 2)" in refused.stderr
    refused = run_inline("leaderboard", "--label", "x")
    assert refused.returncode == 2 and "--label needs --format latex" in refused.stderr
    for label in ("a$b", "a b", "", "x}", "-x", "é"):
        refused = run_inline("leaderboard", "--format", "latex", "--label", label)
        assert refused.returncode == 2 and "letters, digits and the characters" in refused.stderr


def test_published_values_have_one_preamble_and_their_sources_in_the_float(print_latex):
    shown = print_latex("records", "--published").stdout
    assert shown.count("% In the preamble") == 1
    outside = "".join(part.partition("\\end{table}")[2] for part in shown.split("\\begin{table}"))
    assert all(line.startswith("%") for line in outside.splitlines() if line)
    assert "Values of lenet from publications and other tools, not measured here." in shown
