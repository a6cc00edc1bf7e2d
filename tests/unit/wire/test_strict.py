import json
import tracemalloc
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Raw, Struct

from wheelsched.errors import InvalidDocument, InvalidField, InvalidJson
from wheelsched.values.problem_list import MAX_PROBLEMS
from wheelsched.wire import strict
from wheelsched.wire.strict import MAX_DEPTH, check_json, read_strictly


class Inner(Struct, forbid_unknown_fields=True):
    size: Annotated[int, Meta(ge=1)]
    labels: dict[str, str] = {}


class Outer(Struct, forbid_unknown_fields=True):
    inner: Inner
    more: list[Inner] = []
    rest: Raw = msgspec.field(default_factory=lambda: Raw(b"null"))


DECODER = msgspec.json.Decoder(Outer)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("body", "pointer", "said"),
    [
        (b"", "", "empty text"),
        (b" \n", "", "empty text"),
        (b'{"a": 1', "", "line 1, column 8"),
        (b'{"a": 1} 2', "", "extra data"),
        (b'{"a": [1, {"b": 1, "b": 1}]}', "/a/1/b", "duplicate key 'b'"),
        (b'{"a": {"b/c": NaN}}', "/a/b~1c", "NaN is not a valid JSON number"),
        (b"[0, -Infinity]", "/1", "-Infinity is not a valid JSON number"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "/a", "5,000 digits"),
        (rb'{"a": ["x\u0000y"]}', "/a/0", "u0000"),
        (rb'{"a": {"x\u0000y": 1}}', "/a", "u0000"),
        (rb'{"a": "\ud800"}', "/a", "surrogate"),
        (b'{"a": "\xff"}', "", "invalid UTF-8 at byte 7"),
        (b'{"a": "\x01"}', "", "control character"),
        (nested(200_000), "", "deeper than 64 levels"),
        (nested(MAX_DEPTH + 2), "/0" * (MAX_DEPTH + 1), "deeper than 64 levels"),
    ],
)
def test_invalid_or_ambiguous_json_is_rejected(body: bytes, pointer: str, said: str) -> None:
    with pytest.raises(InvalidJson, match=said) as caught:
        check_json(body)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    "body", [nested(MAX_DEPTH), rb'["\ud83d\ude00"]', rb'["\\u0000"]', b"[1e400]", b"9" * 1_000]
)
def test_suspicious_but_valid_json_is_accepted(body: bytes) -> None:
    check_json(body)


@pytest.mark.parametrize(
    ("body", "pointer", "said"),
    [
        (b"[]", "", "expected an object, got an array"),
        (b"{}", "/inner", "required"),
        (b'{"inner": {}}', "/inner/size", "required"),
        (b'{"inner": {"size": 1, "a/b": 2}}', "/inner/a~1b", "unknown field 'a/b'"),
        (b'{"inner": {"size": "1"}}', "/inner/size", "expected an integer, got a string"),
        (b'{"inner": {"size": 0}}', "/inner/size", ">= 1"),
        (b'{"inner": {"size": 1}, "more": [{"size": 1}, {"size": []}]}', "/more/1/size", "array"),
        (
            b'{"inner": {"size": 1, "labels": {"a": "b", "c~d": 2}}}',
            "/inner/labels/c~0d",
            "a string",
        ),
    ],
)
def test_a_type_mismatch_has_a_pointer(body: bytes, pointer: str, said: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read_strictly(body, DECODER)
    assert caught.value.pointer == pointer
    assert said in str(caught.value)


def test_all_mismatches_are_raised_together() -> None:
    with pytest.raises(InvalidDocument) as caught:
        read_strictly(b'{"more": [1], "x": 1, "inner": {"labels": {"a": 1, "b": 2}}}', DECODER)
    assert [each.pointer for each in caught.value.errors] == [
        "/x",
        "/inner/size",
        "/inner/labels/a",
        "/inner/labels/b",
        "/more/0",
    ]


def test_the_number_of_reported_problems_is_limited() -> None:
    names = ",".join(f'"x{number}": 1' for number in range(10_000))
    with pytest.raises(InvalidDocument) as caught:
        read_strictly(f'{{"inner": {{"size": 1}}, {names}}}'.encode(), DECODER)
    assert len(caught.value.errors) == MAX_PROBLEMS


@pytest.mark.parametrize(
    "body",
    [
        b'{"%s": NaN}' % (b"x" * 10_000),
        b'{"inner": {"size": 1}, "%s": 1}' % (b"x" * 10_000),
        b'{"inner": {"size": 1}, "%s": 1}' % (b" - at `$.inner" * 1_000),
    ],
)
def test_a_long_name_is_shortened_in_the_error(body: bytes) -> None:
    with pytest.raises(InvalidField) as caught:
        read_strictly(body, DECODER)
    assert len(caught.value.pointer) <= 500
    assert len(str(caught.value)) <= 500


def test_a_long_key_above_many_values_takes_linear_time() -> None:
    body = rb'{"%s": [%s], "u": "\u0041"}' % (b"k" * 40_000, b"1," * 3_999 + b"1")
    tracemalloc.start()
    try:
        check_json(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 20 * len(body)


def test_the_first_of_many_flaws_is_reported() -> None:
    with pytest.raises(InvalidJson) as caught:
        check_json(b'{"a": [1, NaN], "b": NaN, "c": "\\u0000"}')
    assert caught.value.pointer == "/a/1"


def test_raw_values_stay_byte_for_byte() -> None:
    read = read_strictly(b'{"inner": {"size": 1}, "rest": {"a" : 1.50 }}', DECODER)
    assert bytes(read.rest) == b'{"a" : 1.50 }'


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text("ab/~\\u"),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\\u0"), inner),
    )
)
def test_every_other_json_passes(value: object) -> None:
    assert check_json(json.dumps(value).encode()) == json.loads(json.dumps(value))


PIECES = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b" ",
        b'"a":',
        b'"b":',
        b'"a"',
        b'"\\u0000"',
        b'"\\ud800"',
    ),
    *(
        b"1",
        b"-0",
        b"1.50",
        b"1e400",
        b"NaN",
        b"null",
        b'"\xff"',
        b'"\x01"',
        b'"\xc3\xa4"',
        b"9" * 99,
    ),
]


@given(
    st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
    | st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(PIECES))).map(
        lambda pairs: b"{%s}" % b",".join(b'"%s":%s' % (key.encode(), of) for key, of in pairs)
    )
)
def test_the_fast_and_the_slow_pass_agree(body: bytes) -> None:
    glanced = strict._read_back(body)
    if glanced is not strict._UNREAD:
        assert strict._look_closely(body) == glanced
