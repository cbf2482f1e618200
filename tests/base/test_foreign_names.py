"""Private names in documents of other tools."""

import pytest

from xfbench.base import foreign_names


@pytest.mark.parametrize(
    "nodes",
    [
        "nid000[12,13]",
        "nid000[12-13],gpu01",
        "nid0001[2-3]",
        ["nid000[12-12,13]"],
        "nid[00012,00013]",
    ],
)
def test_hosts_of_a_compact_list_are_replaced(nodes):
    names = foreign_names.collect_private_names({"job_nodelist": nodes})
    redact = foreign_names.make_private_text_redactor(names)
    text = redact("Speed %where=nid00012 on nid00013 and gpu01 of nid12rate")
    assert "nid000" not in text and "nid12rate" in text


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/home/jane/train.py", {"jane"}),
        ("/gpfs/home/jane/run", {"jane"}),
        ("/global/homes/j/jane", {"jane"}),
        ("/workspace/train.py", set()),
        ("/work/benchmarks/train.py", set()),
    ],
)
def test_owners_of_home_folders_are_names_but_no_programs(path, names):
    assert foreign_names.collect_private_names({"metadata": {"file": path}}) == names
