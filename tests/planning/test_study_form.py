"""Tests of study files: their settings, and errors reported before a launch."""

import pytest

from xfbench.base.errors import UsageError
from xfbench.planning import experiment, study_form
from xfbench.planning.study_form import SIZES
from xfbench.store import published
from xfbench.studies import answer, quantities, running

BUILT_IN = [name for name in experiment.built_in_and_user_experiment_files() if name != "quick"]
FILE = """
name = "mine"
title = "t"
question = "q?"
[[matrix]]
size = "smoke"
framework = ["reference"]
workload = ["lenet"]
[[analysis]]
name = "best_of"
over = "threads"
"""


@pytest.fixture
def load_changed_study(tmp_path):
    """Return a function that replaces text in FILE, writes the file and loads it."""

    def load_changed(old="", new="", name="mine"):
        assert old in FILE
        file = tmp_path / f"{name}.toml"
        file.write_text(FILE.replace(old, new))
        return experiment.load(str(file))

    return load_changed


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_study_states_question_method_and_sizes(name):
    study = experiment.load(name)
    answer.check_analyses(study)
    assert study.question.endswith("?")
    assert study.sources or name == "framework-slowdown"
    assert 2 <= study.method.count(". ") + 1 <= 6
    assert study.analysis
    assert set(study.sizes) >= {"smoke", "laptop"}
    for analysis in study.analysis:
        assert all(claim.source in study.sources for claim in analysis.claim)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_study_of_imagenet_says_why_lenet_does_not_read_it(name):
    study = experiment.load(name)
    matrices = study.matrices_of_size("paper")
    has_lenet = any("lenet" in matrix.workload for matrix in matrices)
    has_imagenet = any("imagenet" in data for matrix in matrices for data in matrix.data or ())
    if has_lenet and has_imagenet and "H19" in study.sources:
        assert "images of one channel" in " ".join(study.limits)


@pytest.mark.parametrize(
    "name",  # data-format prepares data sets
    [pytest.param(n, marks=pytest.mark.deep if n == "data-format" else ()) for n in BUILT_IN],
)
@pytest.mark.parametrize("size", SIZES)
def test_each_size_of_a_built_in_study_makes_cells(name, size, tmp_path, monkeypatch):
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path))
    study = experiment.load(name)
    if size not in study.sizes:
        pytest.skip("the study has no such size")
    study_plan = running.plan_study_and_write_data(study, size, running.Choices(media={}))
    assert study_plan.plan.requests or study_plan.skipped_cells or study_plan.searches
    for cell, reason in study_plan.skipped_cells:
        assert "processors" in reason and cell.ranks * cell.threads > 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('size = "smoke"', 'size = "smok"', "matrix.0.size"),
        ('over = "threads"', 'ovr = "threads"', "did you mean over"),
        ("[[analysis]]", "[[analyses]]", "did you mean analysis"),
        ('size = "smoke"', 'framwork = ["torch"]', "did you mean framework"),
        ('name = "mine"', 'name = "other"', "'other' must equal the file's name, 'mine'"),
        ('name = "mine"', 'name = "../mine"', "name"),
        (
            'over = "threads"',
            'over = "threads"\n[[analysis.claim]]\nsource = "X"\ntext = "t"',
            "low",
        ),
        (
            'over = "threads"',
            'over = "threads"\n[[analysis.claim]]\nsource = "X"\ntext = "t"\nlow = 1\nlwo = 1',
            "did you mean low",
        ),
        ("[[analysis]]", '[prepared]\nformat = ["zip"]\n[[analysis]]', "prepared.format"),
    ],
)
def test_invalid_study_file_is_reported_in_one_line(load_changed_study, old, new, words):
    with pytest.raises(UsageError) as caught:
        load_changed_study(old, new)
    assert words in str(caught.value) and "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "best_of"', 'name = "best_off"', "did you mean best_of"),
        ('over = "threads"', 'over = "thread"', "did you mean threads"),
        ('over = "threads"', "", "unknown setting ''"),
        ('over = "threads"', 'over = "threads"\nof = "image_per_second"', "images_per_second"),
        ('over = "threads"', 'over = "threads"\nwhere = { kernl = "x" }', "did you mean kernel"),
        (
            'over = "threads"',
            'over = "threads"\n[[analysis.claim]]\nsource = "X"\ntext = "t"\nlow = 1\n',
            "claims of best_of need 'best', claims of other analyses need 'low' or 'high'",
        ),
        (
            'over = "threads"',
            'over = "threads"\n[[analysis.claim]]\nsource = "X"\ntext = "t"\nbest = 1\n'
            'finding = "s"',
            'finding "s": no source says this about',
        ),
        (
            'over = "threads"',
            'over = "threads"\n[[unjudged]]\nfinding = "s"\nreason = "r"',
            'finding "s": no source says this about',
        ),
    ],
)
def test_unknown_analysis_setting_is_reported_before_a_run(load_changed_study, old, new, words):
    with pytest.raises(UsageError) as caught:
        answer.check_analyses(load_changed_study(old, new))
    assert words in str(caught.value)


def test_missing_size_is_reported_with_the_available_sizes(load_changed_study):
    with pytest.raises(UsageError, match=r"mine has no size paper \(sizes: smoke\)"):
        running.plan_study_and_write_data(load_changed_study(), "paper", running.Choices())


def test_user_study_overrides_a_built_in_study_of_the_same_name(
    load_changed_study, tmp_path, monkeypatch
):
    monkeypatch.setenv("XFBENCH_STUDIES", str(tmp_path))
    load_changed_study()
    load_changed_study('name = "mine"', 'name = "kernels"', name="kernels")
    assert experiment.load("mine").title == "t"
    assert experiment.load("kernels").title == "t"
    monkeypatch.setenv("XFBENCH_STUDIES", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "config" / "xfbench" / "studies"
    folder.mkdir(parents=True)
    (tmp_path / "mine.toml").rename(folder / "mine.toml")
    assert "mine" in experiment.list_names()


def test_threads_powers_are_powers_of_two_and_the_core_count(monkeypatch):
    monkeypatch.setattr("xfbench.planning.experiment.machine.usable_cores", lambda: 12)
    settings = {"framework": ["reference"], "workload": ["lenet"], "threads": "powers"}
    cell_protocols = experiment.expand_matrices([experiment.build_matrix(**settings)])
    assert [cell.threads for cell, _ in cell_protocols] == [1, 2, 4, 8, 12]


def test_a_single_batch_size_needs_no_list():
    settings = {"framework": "torch", "workload": "lenet", "batch_size": 8}
    [(cell, _)] = experiment.expand_matrices([experiment.build_matrix(**settings)])
    assert cell.batch_size_per_rank == 8


def test_ranks_per_node_sets_the_number_of_nodes():
    settings = {"framework": ["torch"], "workload": ["lenet"], "batch_size": [64]}
    settings |= {"ranks": [2, 3, 4], "ranks_per_node": 2, "scaling": "weak", "launcher": "mpi"}
    cell_protocols = experiment.expand_matrices([experiment.build_matrix(**settings)])
    assert [(cell.ranks, cell.nodes) for cell, _ in cell_protocols] == [(2, 1), (4, 2)]
    with pytest.raises(UsageError, match="remove --nodes"):
        experiment.expand_matrices([experiment.build_matrix(**settings, nodes=[2])])


@pytest.mark.parametrize("name", BUILT_IN)
def test_published_figures_match_the_sources_and_analyses(name):
    study = experiment.load(name)
    figures = answer.published_figures(study)
    published_findings = published.findings(name)
    assert {finding.citation.key for finding in published_findings} == set(study.sources)
    units = {"efficiency": "%", "spread": "%", "range": "%", "ratio": "times"}
    units |= {"out_of_memory": "images"}
    for analysis in study.analysis:
        unit = units.get(analysis.name) or quantities.find_quantity(analysis).unit
        matching_figures = [
            figure
            for _, figure in figures
            if figure.quantity.startswith(analysis.beside) and figure.unit == unit
        ]
        assert matching_figures or not analysis.beside


def test_analyses_name_settings_as_matrices_do():
    analysis = study_form.Analysis(
        name="ratio", over="lr_scaling", where={"loader": "xfbench", "servers": 2, "threads": 1}
    )
    assert analysis.over == "rate_scaling"
    assert analysis.where == {"input": "ours", "servers": 2, "threads": 1}
    assert study_form.Analysis(name="ratio", over="rate_scaling").over == "rate_scaling"
