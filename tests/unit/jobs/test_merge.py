import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from wheelsched.jobs.merge import merge, merge_job

VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("abc", max_size=1), inner),
    max_leaves=8,
)


def merged(target: Any, patch: Any) -> Any:
    """The algorithm as RFC 7396 writes it, on trees."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@given(VALUES, VALUES)
def test_it_merges_as_the_rfc_says(target: Any, patch: Any) -> None:
    raw = merge(Raw(json.dumps(target).encode()), Raw(json.dumps(patch).encode()))
    assert json.loads(bytes(raw)) == merged(target, patch)


def test_a_value_is_replaced_whole_where_it_is_one() -> None:
    target = Raw(b'{"a": {"b": 1}, "c": {"a": {"b": 1}}}')
    patch = Raw(b'{"a": {"d" : null}, "c": {"a": {"d": 2}}}')
    merged = merge(target, patch, {"a"})
    assert bytes(merged) == b'{"a":{"d" : null},"c":{"a":{"b":1,"d":2}}}'


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        (
            b'{"a": 1.50, "b": { "c" : 2 }}',
            b'{"d": [1 , 2]}',
            b'{"a":1.50,"b":{ "c" : 2 },"d":[1 , 2]}',
        ),
        (b'{"b": {"c": 1e2, "d": 3}}', b'{"b": {"d": null}}', b'{"b":{"c":1e2}}'),
    ],
)
def test_what_it_does_not_name_stays_byte_for_byte(
    target: bytes, patch: bytes, expected: bytes
) -> None:
    assert bytes(merge(Raw(target), Raw(patch))) == expected


HTTP = {"url": "https://example.org/", "method": "PUT", "headers": {"a": "b"}, "batch": 2}
QUEUE = {"queue": "billing", "claim_within": "2h"}


@pytest.mark.parametrize(
    ("stored", "patch", "expected"),
    [
        (HTTP, {"queue": "a"}, {"queue": "a"}),
        (HTTP, {"queue": "a", "url": None}, {"queue": "a", "url": None}),
        (QUEUE, {"url": "b"}, {"url": "b"}),
        (HTTP, {"url": "b"}, HTTP | {"url": "b"}),
        (
            HTTP,
            {"batch": 3, "method": None},
            {"url": HTTP["url"], "headers": {"a": "b"}, "batch": 3},
        ),
        (QUEUE, {"claim_within": None}, {"queue": "billing"}),
        (QUEUE, {"queue": "a"}, QUEUE | {"queue": "a"}),
        (HTTP, {"url": "b", "queue": "a"}, HTTP | {"url": "b", "queue": "a"}),
        (HTTP, {}, HTTP),
    ],
)
def test_a_target_of_another_kind_replaces_the_stored_one(
    stored: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]
) -> None:
    document = Raw(json.dumps({"target": stored, "tags": {"a": "b"}}).encode())
    merged = merge_job(document, Raw(json.dumps({"target": patch, "tags": {"c": "d"}}).encode()))
    assert json.loads(bytes(merged)) == {"target": expected, "tags": {"a": "b", "c": "d"}}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [({}, {"target": QUEUE}), ({"target": None}, {}), ({"target": 1}, {"target": 1})],
)
def test_a_patch_that_names_no_kind_is_merged_as_usual(
    patch: dict[str, Any], expected: dict[str, Any]
) -> None:
    document = Raw(json.dumps({"target": QUEUE}).encode())
    assert json.loads(bytes(merge_job(document, Raw(json.dumps(patch).encode())))) == expected
