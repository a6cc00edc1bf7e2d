"""Frames keep every message, and a reader keeps its bound."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.desks import TENANT, queue_run

from wheelsched.core.model import RunKey
from wheelsched.core.outcome import Failed, Succeeded
from wheelsched.delivery.link.messages import (
    FROM_SHARD,
    MAX_GREETING_BYTES,
    TO_SHARD,
    AskWaiting,
    Cancel,
    Finish,
    Forget,
    FrameReader,
    FromShard,
    GiveBack,
    HandOut,
    Lend,
    Ping,
    Recall,
    Receipts,
    Returned,
    ToShard,
    Wait,
    WaitingAnswer,
    encode,
)
from wheelsched.errors import InvalidFrame
from wheelsched.ports.work import Attempted, Pool, Receipt, Waiting

POOL = Pool(TENANT, ("billing", "reports"))
ATTEMPT = Attempted(RunKey(UUID(int=5), 1_700_000_000_000_000), (123 << 32) | 7)


@pytest.mark.parametrize(
    "message",
    [
        Ping(),
        Lend(POOL, 5),
        Recall(1, POOL, 5),
        Forget(POOL),
        Finish(2, [(ATTEMPT, Succeeded()), (ATTEMPT, Failed(error="no", retry_after_us=5))]),
        GiveBack([ATTEMPT]),
        AskWaiting(3, TENANT),
    ],
)
def test_a_message_to_a_shard_arrives_as_it_was_sent(message: ToShard) -> None:
    (body,) = FrameReader().feed(encode(message))
    assert TO_SHARD.decode(body) == message


@pytest.mark.parametrize(
    "message",
    [
        Ping(),
        HandOut(POOL, [queue_run(content=b"\xff\x00 not text")], 7),
        Cancel([ATTEMPT]),
        Wait(TENANT, "billing", 3),
        Returned(1, 2),
        Receipts(2, [Receipt.WRITTEN, Receipt.STALE, Receipt.UNKNOWN]),
        WaitingAnswer(3, [Waiting("billing", 2, 1_000), Waiting("reports", 0)]),
    ],
)
def test_a_message_of_a_shard_arrives_as_it_was_sent(message: FromShard) -> None:
    (body,) = FrameReader().feed(encode(message))
    assert FROM_SHARD.decode(body) == message


@given(st.lists(st.binary(max_size=50), max_size=10), st.data())
def test_frames_arrive_in_whatever_pieces_the_network_makes(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader = FrameReader()
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == bodies


def test_a_frame_that_is_too_long_is_refused_before_it_is_read() -> None:
    reader = FrameReader()
    with pytest.raises(InvalidFrame, match="at most 512"):
        list(reader.feed((MAX_GREETING_BYTES + 1).to_bytes(4, "big")))


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xc1", b"\x92\x14", b"\xff" * 100, b"Z" * 16])
def test_an_invalid_message_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidFrame):
        TO_SHARD.decode(body)


def test_a_shard_takes_no_message_that_only_shards_send() -> None:
    (body,) = FrameReader().feed(encode(Wait(TENANT, "billing", 1)))
    with pytest.raises(InvalidFrame):
        TO_SHARD.decode(body)
