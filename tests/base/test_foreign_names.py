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


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({"hostname": {"cn17": 3}}, {"cn17"}),
        ({"user": {"first": {"x1": "jane"}}}, {"first", "x1", "jane"}),
        ({"node": ["cn17", ["cn18"]]}, {"cn17", "cn18"}),
        ({"name": "Test %nid=cn17 %size=b4"}, {"cn17"}),
        ({"job_user": " Jane Doe "}, {"Jane Doe", "Jane", "Doe"}),
        ({"userName": "jane", "user_id": "u1x", "XNAME": "x3c0"}, {"jane", "u1x", "x3c0"}),
        ({"user": "Unknown", "host": "localhost", "nodes": "16", "size": "cn17"}, set()),
        ({"host": "10.0.0.7"}, {"10.0.0.7"}),
    ],
)
def test_names_below_keys_such_as_host_and_user_are_found(document, names):
    assert foreign_names.collect_private_names(document) == names


@pytest.mark.parametrize(
    "key",
    [
        *("fqdn", "host", "hosts", "hostlist", "hostname", "hostnames", "nid", "nids", "node"),
        *("nodes", "nodelist", "nodename", "nodenames", "xname", "xnames", "login", "logname"),
        *("owner", "pocname", "user", "userid", "username", "usernames", "users"),
    ],
)
def test_each_key_of_names_is_known_in_objects_and_texts(key):
    assert foreign_names.collect_private_names({key: "cn17"}) == {"cn17"}
    assert foreign_names.collect_private_names({"name": f"Test %{key}=cn17"}) == {"cn17"}


@pytest.mark.parametrize(
    ("names", "text", "redacted"),
    [
        ({"cn17", "jane"}, "cn17 of JANE, janet", "…1 of …2, janet"),
        ({"cn17.lab.example"}, "cn17.lab.example, cn17", "…1, …1"),
        ({"x", "y" * 254}, f"x {'y' * 254}", f"x {'y' * 254}"),
        ({"node7"}, "node8 node[1-3] node", "…1 …2 node"),
        ({"b7"}, "b7 b8", "…1 b8"),  # too short for other digits
        ({"node0007"}, "test_onnode0007 onnode0008", "test_on…1 onnode0008"),
        ({"anna"}, "susanna", "susanna"),
        (set(), "mail q@example.org, https://a:b@host/x", "mail …, https://…@host/x"),
        (set(), "no /gpfs/home/jane/x here", "no …/x here"),
    ],
)
def test_names_addresses_and_home_folders_are_redacted(names, text, redacted):
    assert foreign_names.make_private_text_redactor(names)(text) == redacted
