"""Digests of JSON: found quickly, and never those of anything else."""

import json

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from xfbench.base import digests
from xfbench.model import sealed

NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(), inside, max_size=4),
    max_leaves=12,
)


@given(VALUES)
@example([2.0, -2.0, 0.0, -0.0, 1e15, 1e16, 1e21, 1e22, 5.5e-5, 1e-5, -3e-6, 1e-7, 1.5e300])
@example(['a "quoted" 1.0,', "1.0]", "back\\slash", '\\"', "\u2028", "\U0001f600", "\ufb33"])
@example({"\U0001f600": 1, "\ufb33": 2})
def test_canonical_json_matches_rfc_8785(value):
    canonical = rfc8785.dumps(value)
    assert digests.canonical_form_if(value, digests.of_bytes(canonical)) == canonical
    assert digests.canonical_form_if(value, digests.of_bytes(canonical + b" ")) is None
    document = {"value": value}
    digest = digests.of_json(document)
    for text in (json.dumps({**document, "id": digest}), json.dumps({"id": digest, **document})):
        assert sealed.verify_id(text.encode()) == digest


@pytest.mark.parametrize(
    ("original", "edited"),
    [
        ("1, 2, 3", "1, 2.0, 3"),
        ("[1]", "[1.0]"),
        (":0.000055}", ":5.5e-5}"),
        ('"1,', '"1.0,'),
        (2, "2"),
        (2.5, 2.6),
        (10**17, float(10**17 + 16)),
    ],
)
def test_edited_document_fails_its_digest(original, edited):
    digest = digests.of_bytes(json.dumps({"a": original}, separators=(",", ":")).encode())
    assert digests.canonical_form_if({"a": edited}, digest) is None
    with pytest.raises(ValueError):
        sealed.verify_id(json.dumps({"a": edited, "id": digest}).encode())


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "{}", '{"id": 1}', '{"id": "x", "a": NaN}', "[" * 9999]
)
def test_text_that_is_no_document_has_no_identity(text):
    with pytest.raises(ValueError):
        sealed.verify_id(text.encode())
