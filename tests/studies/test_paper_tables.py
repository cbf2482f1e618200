"""Tests of a study's tables for a paper; tests/rendering/test_latex.py compiles them."""

import csv

import pytest

from xfbench.model.external_record import About, Citation, Figure
from xfbench.planning.study_form import QuotedFigure
from xfbench.store.results_folder import Store
from xfbench.studies import paper_tables


@pytest.fixture
def thread_answer(make_study, make_launches, make_answer):
    """Return the answer on one and two threads; four threads were not measured."""
    claim = {"source": "Doe20", "text": "Two are 2 & 3 times faster", "low": 1.5}
    analysis = {"name": "ratio", "over": "threads", "title": "Speed-up_", "claim": [claim]}
    figure = Figure(
        quantity="speed-up", unit="times", value=2.5, about=About(workload="lenet", threads=2)
    )
    citation = Citation(key="Doe20", title="On threads", where="table 3")
    published = [QuotedFigure(citation=citation, figure=figure)]
    study = make_study(analysis, {"threads": [1, 2, 4]}, limits=["None."], published=published)
    four = {"status": "unavailable", "reason": "4 threads need 4 processors"}
    return make_answer(
        study,
        [
            *make_launches(*[0.2] * 5, threads=1),
            *make_launches(0.1, 0.101, 0.1, 0.099, 0.1, threads=2),
            *make_launches(0.1, threads=4, fields={**four, "measurement": None, "observed": None}),
        ],
    )


def test_a_table_has_values_for_siunitx_and_a_caption(thread_answer):
    latex = paper_tables.render_latex(thread_answer)
    first, *_ = latex.splitlines()
    assert first.startswith("% In the preamble: ") and "booktabs,siunitx" in first
    measured, verdicts, published, comments = latex.split("\\end{table}")
    assert "\\toprule\nconfiguration & threads & times & launches \\\\\n\\midrule" in measured
    [row] = [line for line in measured.splitlines() if " & 2 threads & " in line]
    assert row.startswith("lenet · reference & 2 threads & \\num{2} (\\numrange{")
    assert row.endswith("}) & \\num{5} \\\\")
    [caption] = [line for line in measured.splitlines() if line.startswith("\\caption{")]
    assert caption.startswith("\\caption{t: Speed-up\\_. 10 launches, 2026-11-26, on ")
    assert "The brackets are 95 \\% confidence intervals" in caption
    assert "\\label{tab:xfbench-mine-speed-up}" in measured
    assert "All rows: against 1 thread." in measured
    assert "Two are 2 \\& 3 times faster" in verdicts and "& holds &" in verdicts
    assert "Doe20, table 3" in published
    assert "% Limit: None." in comments and "% To repeat it: xfbench study run mine" in comments
    assert "% No result: " in comments and "4 threads need 4 processors" in comments


def test_few_launches_have_ranges_and_support_no_claim(make_study, make_launches, make_answer):
    study = make_study({"name": "values"})
    latex = paper_tables.render_latex(make_answer(study, make_launches(0.1, 0.2)))
    assert "fewer than 5 launches are their range, which is no confidence interval" in latex
    assert "2 (smoke)" in latex and "support no claim" in latex


def test_a_finding_without_a_value_has_a_comment_and_no_table(make_study, make_answer):
    latex = paper_tables.render_latex(make_answer(make_study({"name": "values"}), []))
    assert "\\begin{table}" not in latex and "% To repeat it" in latex


def test_the_csv_has_all_values_with_reasons_and_settings(thread_answer):
    lines = [*csv.DictReader(paper_tables.render_csv(thread_answer).splitlines())]
    two, four = lines
    assert float(two["value"]) == pytest.approx(2.0, rel=0.01) and two["launches"] == "5"
    assert float(two["low"]) < float(two["value"]) < float(two["high"])
    assert (two["finding"], two["threads"], two["workload"]) == ("Speed-up_", "2", "lenet")
    assert four["value"] == "" and four["reason"] == "4 threads need 4 processors"


def test_a_report_is_written_as_tables(make_launches, run_inline, tmp_path):
    for launch in make_launches(0.1, 0.1):
        Store(tmp_path / "results").add(launch)
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\ntitle = "t"\nquestion = "q?"\n[[matrix]]\nframework = ["reference"]\n'
        'workload = ["lenet"]\nbatch_size = [4]\nsteps = 3\nwarmup = 1\ndata = "synthetic"\n'
        '[[analysis]]\nname = "values"\n'
    )
    for suffix, words in ((".tex", "\\begin{tabular}"), (".csv", "study,size,finding")):
        outcome = run_inline("study", "report", "mine.toml", "--output", f"mine{suffix}")
        assert outcome.returncode == 0, outcome.stderr
        assert words in (tmp_path / f"mine{suffix}").read_text()
