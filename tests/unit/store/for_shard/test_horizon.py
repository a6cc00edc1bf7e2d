import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelsched.store.for_shard.horizon import BLOCK_BYTES, HEADER_BYTES, ROW_BYTES, HorizonDecoder

ROW = struct.Struct(">hi16siqii")
INSTANTS = st.integers(-(1 << 62), 1 << 62)
TIMERS = st.lists(st.tuples(st.uuids(), INSTANTS, st.integers(1, (1 << 31) - 1)), max_size=50)


def wire(timers: list[tuple[UUID, int, int]]) -> bytes:
    """The copy that Postgres would send."""
    rows = [ROW.pack(3, 16, job_id.bytes, 8, due, 4, version) for job_id, due, version in timers]
    return b"h" * HEADER_BYTES + b"".join(rows) + b"\xff\xff"


@given(TIMERS, st.integers(1, 200))
async def test_whatever_the_parts_are_cut_at(
    timers: list[tuple[UUID, int, int]], size: int
) -> None:
    data = wire(timers)
    decoder = HorizonDecoder()
    for start in range(0, len(data), size):
        await decoder.feed(data[start : start + size])
    assert list(decoder.finish(())) == timers


@pytest.mark.parametrize("beyond", [-1, 0, 1])
async def test_more_than_a_block_at_once(beyond: int) -> None:
    count = 2 * BLOCK_BYTES // ROW_BYTES + beyond
    timers = [(UUID(int=number), number, number + 1) for number in range(count)]
    decoder = HorizonDecoder()
    await decoder.feed(wire(timers))
    assert list(decoder.finish(())) == timers
