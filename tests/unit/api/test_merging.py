import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from wheelsched.api.merging import merge

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
