"""A short look for what no reader foresees; `make fuzz` looks longer, led by the code."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.fuzz.targets import TARGETS, WORDS


@st.composite
def spliced(draw: st.DrawFn) -> bytes:
    """Pieces of what is right, in a wrong order, with something between them."""
    pieces = []
    for word in draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)):
        start = draw(st.integers(0, len(word)))
        pieces.append(word[start : draw(st.integers(start, len(word)))])
        pieces.append(
            draw(st.binary(max_size=3) | st.text("*/-,LWH#?0123456789", max_size=4).map(str.encode))
        )
    return b"".join(pieces)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """What is right, but for a byte or two."""
    word = bytearray(draw(st.sampled_from(WORDS)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(word) - 1))
        word[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(word)


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=100) | spliced() | damaged())
@example(data=b"")
def test_whatever_comes_is_read_or_refused(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("word", WORDS, ids=range(len(WORDS)))
def test_what_it_begins_with_is_no_fault_either(name: str, word: bytes) -> None:
    TARGETS[name](word)
