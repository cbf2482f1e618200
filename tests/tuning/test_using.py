"""`run --tuned`: which cells get tuned values, and the messages for the others."""

import json
from functools import partial

import pytest

from tests import sample_records
from xfbench.base.errors import UsageError
from xfbench.environments import environment
from xfbench.host import machine
from xfbench.model import adapter
from xfbench.model.request import Protocol
from xfbench.planning import plan_builder
from xfbench.store.results_folder import Store
from xfbench.store.tuning_results import read_sorted_searches
from xfbench.tuning.using import apply_tuning, build_adjustment

FIXED = Protocol.fixed(3)


@pytest.fixture(scope="module")
def version():
    """Return the PyTorch version, which saved searches are matched by."""
    return environment.ensure_environment(adapter.load("torch")).version


@pytest.fixture
def cell(cell):
    """Return a function that builds a PyTorch cell."""
    return partial(cell, framework="torch", environment="managed", kernel="onednn")


@pytest.fixture
def save_search(cell, version, tmp_path, record):
    """Return a function that saves a search of this machine, and its launch, to the results."""

    def save(best=None, **fields):
        launch = record()
        Store(tmp_path).add(launch)
        counts = {"steps": 20, "warmup": 3}
        search = sample_records.build_tuning(
            cell(**{"threads": 1, "affinity": "cores", **counts, **(best or {})}),
            cell(threads=2, **counts),
            **{"framework_version": version, "records": (launch.id,), **fields},
        )
        search.write(tmp_path)
        return search

    return save


@pytest.fixture
def tune_cell(cell, tmp_path):
    """Return a function that applies tuning to a cell and returns the cell and the messages."""

    def tune(explicit_options=(), **fields):
        lines = []
        [(tuned_cell, protocol)] = apply_tuning(
            [(cell(**{"threads": 2, **fields}), FIXED)],
            explicit_options,
            tmp_path,
            {},
            lines.append,
        )
        assert protocol == FIXED
        return tuned_cell, "\n".join(lines)

    return tune


def test_cell_takes_tuned_values_and_keeps_other_fields(save_search, tune_cell, cell):
    save_search()
    tuned_cell, text = tune_cell(steps=7, seed=3)
    assert tuned_cell == cell(threads=1, affinity="cores", steps=7, seed=3)
    assert text == (
        "tuned: lenet · torch · batch 4: onednn · 1 thread · affinity cores, 1.25 times the default"
    )


def test_explicit_options_override_tuned_values(save_search, tune_cell, cell):
    save_search()
    assert tune_cell({"threads"})[0] == cell(threads=2, affinity="cores")
    assert tune_cell({"affinity", "seed"})[0] == cell(threads=1)


def test_cells_that_become_equal_are_merged(save_search, cell, tmp_path):
    save_search()
    cells = [(cell(threads=1), FIXED), (cell(threads=2), FIXED)]
    assert len(apply_tuning(cells, (), tmp_path, {}, print)) == 1
    assert len(apply_tuning(cells, {"threads"}, tmp_path, {}, print)) == 2


def test_latest_search_is_used(save_search, tune_cell):
    save_search(created="2026-01-02T00:00:00.000Z")
    save_search({"threads": 2}, created="2026-01-01T00:00:00.000Z")
    assert tune_cell()[0].threads == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"framework_version": "0.0"},
        {"confirmed": False},
        {"workload_digest": "sha256:" + "3" * 64},
        {"best": {"global_batch_size": 8, "batch_size_per_rank": 8}},
        {"best": {"precision": "float64"}},
        {"best": {"workload": "convnet"}},
        {"best": {"kernel": "gone"}},
        {"machine": machine.describe_machine().model_copy(update={"cores": 999})},
    ],
)
def test_search_for_a_different_cell_or_version_is_not_used(save_search, tune_cell, cell, fields):
    save_search(**fields)
    tuned_cell, text = tune_cell()
    assert tuned_cell == cell(threads=2)
    assert text.startswith("not tuned: lenet · torch · batch 4: no tuning of ")
    assert "xfbench tune --framework torch --workload lenet --batch-size 4 --results " in text


def test_search_from_another_host_of_the_same_kind_is_used(save_search, tune_cell):
    save_search(machine=machine.describe_machine().model_copy(update={"hostname_hash": "0" * 16}))
    assert tune_cell()[0].threads == 1


TWO = {"ranks": 2, "strategy": "ddp", "scaling": "strong", "batch_size_per_rank": 2}


def test_ranks_strategy_and_threads_are_tuned_together(save_search, tune_cell, cell):
    save_search(TWO)
    assert tune_cell()[0] == cell(threads=1, affinity="cores", **TWO)


@pytest.mark.parametrize("option", ["threads", "ranks", "strategy"])
def test_search_of_two_ranks_is_unused_if_one_option_is_explicit(
    save_search, tune_cell, cell, option
):
    save_search(TWO)
    assert tune_cell({option})[0] == cell(threads=2)


def test_cell_with_the_ranks_of_the_search_takes_its_strategy(save_search, tune_cell, cell):
    save_search(TWO)
    tuned_cell, _ = tune_cell({"ranks", "scaling"}, **{**TWO, "strategy": "mpi"})
    assert tuned_cell == cell(threads=1, affinity="cores", **TWO)


def test_explicit_strategy_is_kept_with_the_ranks_of_the_search(save_search, tune_cell, cell):
    save_search(TWO)
    mpi_fields = {**TWO, "strategy": "mpi"}
    tuned_cell, _ = tune_cell({"ranks", "scaling", "strategy"}, **mpi_fields)
    assert tuned_cell == cell(threads=1, affinity="cores", **mpi_fields)


def test_search_of_strong_scaling_does_not_apply_to_weak(save_search, tune_cell, cell):
    save_search(TWO)
    weak = {**TWO, "scaling": "weak"}
    assert tune_cell({"ranks", "scaling"}, **weak)[0] == cell(threads=2, **weak)


def test_search_of_a_single_rank_does_not_apply_to_two(save_search, tune_cell, cell):
    save_search()
    tuned_cell, text = tune_cell(**TWO)
    assert tuned_cell == cell(threads=2, **TWO) and "--over ranks=2" in text


DRY_RUN = "run --framework torch --workload lenet --batch-size 4 --tuned --dry-run --results"


@pytest.fixture
def dry_run(run_inline):
    """A function that plans a tuned run with a results folder and returns the messages."""

    def run(folder):
        result = run_inline(*DRY_RUN.split(), folder)
        assert result.returncode == 0, result.stderr
        return result.stderr

    return run


@pytest.mark.parametrize("kind", ["archive", "folder", "folder of an earlier import"])
def test_an_imported_search_is_not_used(save_search, dry_run, run_inline, tmp_path, kind):
    """Its sender would decide how launches run here, such as the threads and the kernel."""
    search = save_search({"threads": 1})
    assert "\ntuned: lenet" in f"\n{dry_run(tmp_path)}"
    source, ours = tmp_path, tmp_path / "ours"
    if kind == "archive":
        source = tmp_path / "theirs.tar.gz"
        assert run_inline("results", "export", source, "--results", tmp_path).returncode == 0
    assert run_inline("results", "import", source, "--results", ours).returncode == 0
    reason = f"imported (from {source.name})"
    if kind == "folder of an earlier import":
        for path in (ours / "origins").iterdir():
            if search.id in path.read_text():
                path.unlink()
        reason = "the origin of its launches is: imported"
    show = "tune --framework torch --workload lenet --show --results".split()
    assert f"does not use this search: {reason}" in run_inline(*show, ours).stderr
    messages = dry_run(ours)
    assert messages.count(f"search {search.id[7:19]} is not used: {reason}") == 1
    assert "not tuned: lenet · torch · batch 4: no tuning of" in messages


def test_a_search_that_comes_back_is_used(save_search, dry_run, run_inline, tmp_path):
    save_search()
    run_inline("results", "export", "all.tar", "--results", tmp_path)
    assert run_inline("results", "import", "all.tar", "--results", tmp_path).returncode == 0
    assert "is not used" not in dry_run(tmp_path)


def test_an_earlier_search_of_this_machine_is_used_instead(
    save_search, dry_run, run_inline, tmp_path, cell, version
):
    save_search({"threads": 1}, created="2026-01-02T00:00:00.000Z")
    ours = tmp_path / "ours"
    assert run_inline("results", "import", tmp_path, "--results", ours).returncode == 0
    local = save_search({"threads": 2}, created="2026-01-01T00:00:00.000Z")
    Store(ours).add(next(r for r in Store(tmp_path).records() if r.id == local.records[0]))
    local.write(ours)
    messages = dry_run(ours)
    assert "is not used: imported" in messages
    assert "tuned: lenet · torch · batch 4: onednn · 2 threads" in messages


def test_a_search_without_its_launches_is_not_used(save_search, dry_run, tmp_path):
    save_search()
    assert Store(tmp_path).pack() == 1
    assert "is not used" not in dry_run(tmp_path)
    for path in Store(tmp_path).packs():
        path.unlink()
    assert f"{tmp_path} lacks 1 of its 1 launches" in dry_run(tmp_path)
    forged = save_search(records=(), created="2026-02-01T00:00:00.000Z")
    assert f"{forged.id[7:19]} is not used: it names no launches" in dry_run(tmp_path)


def test_edited_search_is_reported_and_omitted(save_search, tune_cell, tmp_path):
    search = save_search()
    [file] = (tmp_path / "tuned").iterdir()
    assert file.stem == search.id[7:]
    file.write_text(file.read_text().replace('"threads": 1', '"threads": 2'))
    (tmp_path / "tuned" / "other.json").write_text("{}")
    tuned_cell, text = tune_cell()
    assert tuned_cell.threads == 2 and "its content does not match its id" in text
    assert "other.json: not a search of `xfbench tune`" in text


def test_a_search_with_one_wrong_field_is_reported(save_search, tune_cell, tmp_path):
    save_search()
    [file] = (tmp_path / "tuned").iterdir()
    document = json.loads(file.read_text())
    document["seed"] = "first"
    (tmp_path / "tuned" / "other.json").write_text(json.dumps(document))
    _, text = tune_cell()
    assert "other.json: not a search of `xfbench tune`" in text


def test_control_characters_in_file_names_are_escaped(save_search, tmp_path, capsys):
    save_search()
    (tmp_path / "tuned" / "\x1b[2J[x].json").write_text("{}")
    settings = {"framework": ["torch"], "workload": ["lenet"], "launches": 1}
    plan_builder.build_plan(settings, build_adjustment(tmp_path))
    error_text = capsys.readouterr().err
    assert "\\x1b[2J[x].json: not a search of" in error_text and "\x1b" not in error_text


def test_search_survives_a_write_and_read(save_search, tmp_path):
    search = save_search()
    assert read_sorted_searches(tmp_path, print) == [search]
    assert read_sorted_searches(tmp_path / "nowhere", print) == []


def test_plan_uses_the_tuned_values(save_search, tmp_path):
    save_search()
    basic_settings = {
        "framework": ["torch"],
        "workload": ["lenet"],
        "batch_size": [4],
        "launches": 2,
    }

    def plan_settings(**options):
        plan_options = {**basic_settings, **options}
        plan = plan_builder.build_plan(plan_options, build_adjustment(tmp_path))
        assert dict(plan.protocols).keys() == {request.cell() for request in plan.requests}
        return {(request.threads, request.affinity, request.launch) for request in plan.requests}

    assert plan_settings() == {(1, "cores", 1), (1, "cores", 2)}
    assert plan_settings(threads=[2], pinning=None) == {(2, "cores", 1), (2, "cores", 2)}
    with pytest.raises(UsageError, match="--bundle is for another"):
        plan_builder.build_plan({**basic_settings, "bundle": tmp_path}, build_adjustment(tmp_path))


def test_tuned_values_are_refused_for_submitted_jobs(cell, tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UsageError, match="submitted jobs"):
        apply_tuning([(cell(launcher="slurm"), FIXED)], (), tmp_path, {}, print)


def test_tuned_threads_above_the_core_count_are_not_used(save_search, tune_cell, cell):
    save_search({"threads": 4096})
    tuned_cell, text = tune_cell()
    assert tuned_cell == cell(threads=2) and text.startswith("not tuned: ")
