"""Conditions that select records, as users type them."""

import pytest

from xfbench.base.errors import UsageError
from xfbench.store.selection import parse_conditions, record_fields

DOCUMENT = {
    "created": "2026-11-22T05:52:57.892Z",
    "status": "ok",
    "certificate": None,
    "request": {"framework": "torch", "threads": 2, "workload": "lenet", "ranks": 1},
    "observed": {"libraries": ["/lib/libmkl.so", "/lib/libc.so"], "cpus": 1.5, "affinity": [0, 3]},
    "software": {"packages": {"numpy": "1.26.4", "google.protobuf": "5"}, "git_dirty": False},
    "learning": [{"epoch": 1, "test_accuracy": 0.9}, {"epoch": 2, "test_accuracy": 0.98}],
}


def matches_document(text):
    [condition] = parse_conditions([text])
    return condition.holds(DOCUMENT)


@pytest.mark.parametrize(
    "text",
    [
        "request.framework=torch",
        "framework = torch",
        "framework!=mxnet",
        "threads>=2",
        "threads=2.0",
        "threads<2.5",
        "threads<=2",
        "observed.cpus>1",
        "created>=2026-11",
        "created<2026-12",
        "certificate=null",
        "site=null",
        "status!=null",
        "software.git_dirty=false",
        "software.packages.numpy=1.26.4",
        "software.packages.google.protobuf=5",
        "software.packages.scipy=null",
        "observed.libraries~MKL",
        "observed.libraries=/lib/libc.so",
        "observed.affinity=3",
        "learning.test_accuracy>=0.97",
        "framework~OR",
    ],
)
def test_condition_matches_the_record(text):
    assert matches_document(text)


def test_a_doubled_sign_is_refused_with_the_right_one():
    with pytest.raises(UsageError, match="--where framework==torch: write one =, as in framework="):
        parse_conditions(["framework==torch"])


@pytest.mark.parametrize(
    "text",
    [
        "framework=Torch",
        "framework!=torch",
        "threads>2",
        "threads<2",
        "certificate!=null",
        "software.git_dirty=true",
        "observed.libraries~openblas",
        "observed.affinity=1",
        "framework=null",
        "learning.test_accuracy>0.99",
        "observed.cpus<1",
        "site=stampede2",
    ],
)
def test_condition_does_not_match_the_record(text):
    assert not matches_document(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("framwork=torch", "did you mean framework"),
        ("threads=many", "is a number"),
        ("software.git_dirty=perhaps", "true or false"),
        ("threads~2", "is not text"),
        ("threads>=null", "is a number"),
        ("software.git_dirty>true", "true or false"),
        ("threads", "expected FIELD=VALUE"),
        ("", "expected FIELD=VALUE"),
        ("=3", "expected FIELD=VALUE"),
        ("framework=\udcff", "not valid text"),
    ],
)
def test_invalid_condition_is_a_usage_error(text, words):
    with pytest.raises(UsageError, match=words):
        parse_conditions([text])


def test_conditions_may_be_separated_by_commas():
    assert parse_conditions(["framework=torch, threads>=2", "status!=ok"]) == [
        *parse_conditions(["framework=torch"]),
        *parse_conditions(["threads>=2"]),
        *parse_conditions(["status!=ok"]),
    ]
    [condition] = parse_conditions(["reason=no kernel, no result"])
    assert condition.value == "no kernel, no result"


def test_every_record_field_has_a_selection_name(record):
    def iterate_leaf_paths(value, path):
        if isinstance(value, dict) and path not in record_fields():
            for name, child in value.items():
                yield from iterate_leaf_paths(child, f"{path}.{name}".lstrip("."))
        elif value is not None:
            yield path

    assert set(iterate_leaf_paths(record().document(), "")) <= set(record_fields())


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("batch-size=4", "request.global_batch_size"),
        ("batch_size>=4", "request.global_batch_size"),
        ("pinning=none", "request.affinity"),
        ("threads=2", "request.threads"),
    ],
)
def test_an_option_names_the_field_with_its_value(text, field):
    [condition] = parse_conditions([text])
    assert condition.field == field
