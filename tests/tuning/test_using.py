"""`run --tuned`: which cells get what a search found, and what is said of the others."""

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
from xfbench.store.tuning_results import read_folder
from xfbench.tuning.using import apply_tuning, build_adjustment

FIXED = Protocol.fixed(3)


@pytest.fixture(scope="module")
def version():
    """PyTorch's, by which searches are known."""
    return environment.ensure(adapter.load("torch")).version


@pytest.fixture
def cell(cell):
    """As any test's, of PyTorch."""
    return partial(cell, framework="torch", environment="managed", kernel="onednn")


@pytest.fixture
def saved(cell, version, tmp_path):
    """A function that keeps a search in the results folder, as if it had been done here."""

    def make(best=None, **fields):
        usual = {"steps": 20, "warmup": 3}
        found = sample_records.build_tuning(
            cell(**{"threads": 1, "affinity": "cores", **usual, **(best or {})}),
            cell(threads=2, **usual),
            **{"framework_version": version, **fields},
        )
        found.write(tmp_path)
        return found

    return make


@pytest.fixture
def using(cell, tmp_path):
    """A function: what becomes of one cell, and what is said."""

    def use(given=(), **fields):
        said = []
        [(found, protocol)] = apply_tuning(
            [(cell(**{"threads": 2, **fields}), FIXED)], given, tmp_path, {}, said.append
        )
        assert protocol == FIXED
        return found, "\n".join(said)

    return use


def test_cell_takes_tuned_values_and_keeps_other_fields(saved, using, cell):
    saved()
    found, said = using(steps=7, seed=3)
    assert found == cell(threads=1, affinity="cores", steps=7, seed=3)
    assert said == (
        "tuned: lenet · torch · batch 4: onednn · 1 thread · affinity cores, 1.25 times the default"
    )


def test_explicit_options_override_tuned_values(saved, using, cell):
    saved()
    assert using({"threads"})[0] == cell(threads=2, affinity="cores")
    assert using({"affinity", "seed"})[0] == cell(threads=1)


def test_cells_that_become_equal_are_merged(saved, cell, tmp_path):
    saved()
    cells = [(cell(threads=1), FIXED), (cell(threads=2), FIXED)]
    assert len(apply_tuning(cells, (), tmp_path, {}, print)) == 1
    assert len(apply_tuning(cells, {"threads"}, tmp_path, {}, print)) == 2


def test_latest_search_is_used(saved, using):
    saved(created="2026-01-02T00:00:00.000Z")
    saved({"threads": 2}, created="2026-01-01T00:00:00.000Z")
    assert using()[0].threads == 1


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
        {"machine": machine.describe().model_copy(update={"cores": 999})},
    ],
)
def test_search_for_a_different_cell_or_version_is_not_used(saved, using, cell, fields):
    saved(**fields)
    found, said = using()
    assert found == cell(threads=2)
    assert said.startswith("not tuned: lenet · torch · batch 4: no tuning of ")
    assert "xfbench tune --framework torch --workload lenet --batch-size 4 --results " in said


def test_search_from_another_host_of_the_same_kind_is_used(saved, using):
    saved(machine=machine.describe().model_copy(update={"hostname_hash": "0" * 16}))
    assert using()[0].threads == 1


TWO = {"ranks": 2, "strategy": "ddp", "scaling": "strong", "batch_size_per_rank": 2}


def test_ranks_and_threads_are_tuned_together_or_not_at_all(saved, using, cell):
    saved(TWO)
    assert using()[0] == cell(threads=1, affinity="cores", **TWO)
    for chosen in ("threads", "ranks", "strategy"):
        assert using({chosen})[0] == cell(threads=2)
    own = {**TWO, "strategy": "mpi"}
    assert using({"ranks", "scaling"}, **own)[0] == cell(threads=1, affinity="cores", **TWO)
    found, _ = using({"ranks", "scaling", "strategy"}, **own)
    assert found == cell(threads=1, affinity="cores", **own)
    weak = {**TWO, "scaling": "weak"}
    assert using({"ranks", "scaling"}, **weak)[0] == cell(threads=2, **weak)


def test_search_of_a_single_rank_does_not_apply_to_two(saved, using, cell):
    saved()
    found, said = using(**TWO)
    assert found == cell(threads=2, **TWO) and "--over ranks=2" in said


def test_edited_search_is_reported_and_omitted(saved, using, tmp_path):
    search = saved()
    [file] = (tmp_path / "tuned").iterdir()
    assert file.stem == search.id[7:]
    file.write_text(file.read_text().replace('"threads": 1', '"threads": 2'))
    (tmp_path / "tuned" / "other.json").write_text("{}")
    found, said = using()
    assert found.threads == 2 and "its content does not match its id" in said
    assert "other.json: not a search of `xfbench tune`" in said


def test_a_search_with_one_wrong_field_is_reported(saved, using, tmp_path):
    saved()
    [file] = (tmp_path / "tuned").iterdir()
    document = json.loads(file.read_text())
    document["seed"] = "first"
    (tmp_path / "tuned" / "other.json").write_text(json.dumps(document))
    _, said = using()
    assert "other.json: not a search of `xfbench tune`" in said


def test_control_characters_in_file_names_are_escaped(saved, tmp_path, capsys):
    saved()
    (tmp_path / "tuned" / "\x1b[2J[x].json").write_text("{}")
    settings = {"framework": ["torch"], "workload": ["lenet"], "launches": 1}
    plan_builder.build_plan(settings, pythons={}, adjust=build_adjustment(tmp_path))
    told = capsys.readouterr().err
    assert "\\x1b[2J[x].json: not a search of" in told and "\x1b" not in told


def test_search_survives_a_write_and_read(saved, tmp_path):
    search = saved()
    assert read_folder(tmp_path, print) == [search]
    assert read_folder(tmp_path / "nowhere", print) == []


def test_plan_uses_the_tuned_values(saved, tmp_path):
    saved()
    asked_for = {"framework": ["torch"], "workload": ["lenet"], "batch_size": [4], "launches": 2}

    def planned(**more):
        settings = {**asked_for, **more}
        found = plan_builder.build_plan(settings, pythons={}, adjust=build_adjustment(tmp_path))
        assert dict(found.protocols).keys() == {one.cell() for one in found.requests}
        return {(one.threads, one.affinity, one.launch) for one in found.requests}

    assert planned() == {(1, "cores", 1), (1, "cores", 2)}
    assert planned(threads=[2], affinity=None) == {(2, "cores", 1), (2, "cores", 2)}
    with pytest.raises(UsageError, match="--carry is for another"):
        plan_builder.build_plan(
            asked_for, pythons={}, adjust=build_adjustment(tmp_path), carried=True
        )


def test_tuned_values_are_refused_for_submitted_jobs(cell, tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UsageError, match="submitted jobs"):
        apply_tuning([(cell(launcher="slurm"), FIXED)], (), tmp_path, {}, print)


def test_tuned_threads_above_the_core_count_are_not_used(saved, using, cell):
    saved({"threads": 4096})
    found, said = using()
    assert found == cell(threads=2) and said.startswith("not tuned: ")
