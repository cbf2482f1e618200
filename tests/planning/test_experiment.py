"""Experiments: every wrong setting is reported before a launch, with the nearest name."""

import pytest

from xfbench.base.errors import UsageError
from xfbench.model import adapter
from xfbench.model.request import Protocol
from xfbench.planning import experiment, matching


def build_cells(**settings):
    all_settings = {"framework": ["torch"], "workload": ["lenet"], **settings}
    return experiment.expand_matrices([experiment.build_matrix(**all_settings)])


def test_lists_are_combined_into_cells():
    cells = build_cells(framework=["torch", "mxnet"], workload=["lenet", "convnet"], threads=[1, 2])
    assert len(cells) == 8
    assert {protocol for _, protocol in cells} == {Protocol(least=5, most=20, precision=0.02)}
    assert len({cell for cell, _ in cells}) == 8


def test_omitted_settings_take_the_workload_defaults():
    [(lenet, _)] = build_cells(epochs=2)
    [(alexnet, _)] = build_cells(workload=["alexnet"])
    assert (lenet.data, lenet.global_batch_size, lenet.steps, lenet.epochs) == (
        "digits",
        64,
        None,
        2,
    )
    assert (alexnet.data, alexnet.global_batch_size, alexnet.steps) == ("synthetic", 256, 20)
    assert lenet.kernel == "onednn"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"framework": ["torhc"]}, "unknown framework 'torhc': did you mean torch?"),
        ({"workload": ["alexnett"]}, "unknown workload 'alexnett': did you mean alexnet?"),
        ({"kernel": ["onedn"]}, "unknown kernel 'onedn': did you mean onednn?"),
        ({"device": ["gpu"]}, "unknown device 'gpu'"),
        ({"precision": ["float23"]}, "unknown precision 'float23': did you mean float32?"),
        ({"data": "digit"}, "unknown data set 'digit': did you mean digits?"),
        ({"threads": [0]}, "threads"),
        ({"launches": 0}, "launches"),
        ({"epochs": 3, "data": "synthetic"}, "synthetic data has no epochs"),
        ({"epochs": 3, "steps": 3}, "give exactly one of steps and epochs"),
        ({"epochs": 3, "min_time": 3}, "min_time and warmup_time are for steps"),
        ({"framework": []}, "no framework was given"),
        ({"threads": list(range(1, 1000)), "batch_size": list(range(1, 1000))}, "too many"),
        ({"wramup": 2}, "unknown setting 'wramup': did you mean warmup?"),
    ],
)
def test_wrong_setting_is_reported_in_one_line(settings, words):
    with pytest.raises(UsageError) as caught:
        build_cells(**settings)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "min_seconds", "min_warmup_seconds"),
    [
        ({}, 5, 1),
        ({"min_time": 2}, 2, 1),
        ({"min_time": 0, "warmup_time": 0}, None, None),
        ({"steps": 20}, None, None),
        ({"steps": 20, "min_time": 2, "warmup_time": 0.5}, 2, 0.5),
        ({"epochs": 2}, None, None),
    ],
)
def test_launches_last_5_seconds_unless_their_length_is_given(
    settings, min_seconds, min_warmup_seconds
):
    [(cell, _)] = build_cells(**settings)
    assert (cell.min_seconds, cell.min_warmup_seconds) == (min_seconds, min_warmup_seconds)
    matrix = experiment.build_matrix(framework=["torch"], workload=["lenet"], **settings)
    assert matching.is_in_matrix(matrix, cell.request(1), matching.Catalog())
    if cell.steps:
        longer = cell.model_copy(update={"min_seconds": 9.0})
        assert not matching.is_in_matrix(matrix, longer.request(1), matching.Catalog())


def test_all_kernels_are_those_of_each_framework_on_the_device():
    settings = {"framework": ["torch", "mxnet"], "workload": ["lenet"], "kernel": ["all"]}
    matrix = experiment.build_matrix(**settings, device=["cpu"])
    cells = [cell for cell, _ in experiment.expand_matrices([matrix])]
    expected = {
        (name, kernel)
        for name in matrix.framework
        for kernel in adapter.load(name).kernels_on("cpu")
    }
    assert {(cell.framework, cell.kernel) for cell in cells} == expected
    assert len(cells) == len(expected) and ("mxnet", "native") in expected
    catalog = matching.Catalog()
    assert all(matching.is_in_matrix(matrix, cell.request(1), catalog) for cell in cells)
    default = experiment.build_matrix(**{**settings, "kernel": ["default"]})
    matched = [cell for cell in cells if matching.is_in_matrix(default, cell.request(1), catalog)]
    assert {cell.kernel for cell in matched} == {"onednn"}


def test_every_built_in_experiment_has_valid_cells():
    for name in experiment.list_names():
        study = experiment.load(name)
        if not study.prepared:  # tests/studies has the others
            present = [
                matrix for matrix in study.matrix if not {*(matrix.data or ())} & {*study.present}
            ]
            assert experiment.expand_matrices(
                [matrix for matrix in present if [*matrix.size] != ["paper"]]
            )


@pytest.mark.parametrize(
    ("scaling", "per_rank", "fixed"),
    [("strong", 16, 128), ("weak", 128, 128), ("per-node", 32, 128)],
)
def test_scaling_decides_among_which_ranks_a_batch_is_divided(scaling, per_rank, fixed):
    settings = {"ranks": [8], "ranks_per_node": 4, "launcher": "mpi"}
    [(cell, _)] = build_cells(scaling=scaling, batch_size=[128], **settings)
    assert (cell.batch_size_per_rank, cell.fixed_batch_size) == (per_rank, fixed)
    assert cell.global_batch_size == 8 * per_rank
    if scaling == "per-node":
        with pytest.raises(UsageError, match="evenly among 4 ranks"):
            build_cells(scaling=scaling, batch_size=[30], **settings)


def test_list_of_a_strategy_option_makes_a_matrix_for_each_value(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\ntitle = "t"\nquestion = "q"\n[[matrix]]\nframework = ["mxnet"]\n'
        'workload = ["lenet"]\nranks = [2]\nscaling = "weak"\nstrategy = ["dist_async"]\n'
        'strategy_options = { servers = [1, 2, 4], overlap = "off" }\n'
    )
    cells = experiment.expand_matrices(experiment.load(str(file)).matrix)
    assert [dict(cell.strategy_options) for cell, _ in cells] == [
        {"overlap": "off"},
        {"overlap": "off", "servers": 2},
        {"overlap": "off", "servers": 4},
    ]


def test_quick_experiment_has_8_cells_of_3_launches():
    cells = experiment.expand_matrices(experiment.load("quick").matrix)
    assert len(cells) == 8
    assert {protocol for _, protocol in cells} == {Protocol.fixed(3)}


def test_unknown_key_in_a_file_is_reported_with_its_place(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "m"\ntitle = "t"\nquestion = "q"\n[[matrix]]\nframwork = ["torch"]\n'
        'framework = ["torch"]\nworkload = ["lenet"]\n'
    )
    with pytest.raises(
        UsageError, match=r"mine\.toml, line 5: matrix\.0: unknown .*did you mean framework"
    ):
        experiment.load(str(file))


def test_invalid_toml_is_reported_with_file_and_line(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("name = \n")
    with pytest.raises(UsageError, match=r"mine\.toml: .*line 1"):
        experiment.load(str(file))
