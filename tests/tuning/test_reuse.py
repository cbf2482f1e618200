"""The result of a search as a command, as lines of a modulefile, and as TOML."""

import tomllib
from functools import partial

import pytest

from tests import sample_records
from tests.command_runner import parse_run_command
from xfbench.cli.options import parse_options
from xfbench.planning import experiment
from xfbench.tuning import reuse
from xfbench.tuning.reuse import describe_for_reuse


@pytest.fixture
def describe(cell):
    """Return a function that describes the search that found this cell."""
    torch_cell = partial(cell, framework="torch", environment="managed")

    def describe(**fields):
        best = torch_cell(**fields)
        return [*describe_for_reuse(sample_records.build_tuning(best, torch_cell()))]

    return describe


def test_command_gives_the_same_setting(describe):
    lines = describe(kernel="channels_last", threads=2, affinity="cores")
    command = next(line for line in lines if line.startswith("xfbench run"))
    values = parse_options(
        {k: v for k, v in parse_run_command(command.split()[2:]).items() if k != "job"}
    )
    assert values["kernel"] == ["channels_last"] and values["threads"] == [2]
    assert values["pinning"] == "cores" and values["framework"] == ["torch"]


def test_modulefile_lines_set_variables(describe):
    lines = describe(kernel="onednn", threads=2)
    assert "setenv OMP_NUM_THREADS 2" in lines
    assert all(line.split()[0] in ("setenv", "prepend-path") for line in lines if "OMP" in line)


def test_modulefile_of_a_cpu_setting_has_no_variables_of_gpus(describe):
    assert not any("CUDA" in line for line in describe(kernel="onednn"))
    assert "setenv CUDA_DEVICE_ORDER PCI_BUS_ID" in describe(kernel="cudnn", device="cuda")


def test_toml_is_a_matrix_of_a_study(describe):
    lines = describe(kernel="onednn", threads=2)
    document = tomllib.loads("\n".join(lines[lines.index("[[matrix]]") :]))
    [matrix] = document["matrix"]
    assert matrix["threads"] == [2] and matrix["kernel"] == ["onednn"]
    assert experiment.build_matrix(**matrix).kernel == ["onednn"]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("/usr/lib/libjemalloc.so.2", "/usr/lib/libjemalloc.so.2"),
        ("1 2", '"1 2"'),
        ("$HOME/[x]", r'"\$HOME/\[x\]"'),
        ('a\\b"c{d}e;f', r'"a\\b\"c\{d\}e\;f"'),
    ],
)
def test_values_are_words_of_tcl(value, word):
    assert reuse._quote_for_tcl(value) == word


def test_variables_have_no_unfilled_folder_and_the_allocator(cell):
    caffe_cell = cell(
        framework="caffe", environment="managed", kernel="mkl", allocator="jemalloc", threads=2
    )
    variables = reuse._environment_variables(caffe_cell)
    assert all("{" not in value for value in variables.values())
    assert "jemalloc" in variables["LD_PRELOAD"]
