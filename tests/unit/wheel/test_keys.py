"""Timers that are known by their key."""

import random
import uuid
from array import array

import numpy as np
import pytest

from wheelsched import KeyedWheel, UUIDWheel

TICK = 1 << 20


def test_one_timer_for_each_key() -> None:
    wheel = KeyedWheel()
    assert wheel.upsert(7, 5 * TICK)
    assert not wheel.upsert(7, 2 * TICK)
    assert wheel.upsert(-7, 3 * TICK)
    assert len(wheel) == 2
    assert wheel.deadline(7) == 2 * TICK
    assert 7 in wheel
    assert 8 not in wheel
    assert wheel.advance(9 * TICK) == [7, -7]
    assert 7 not in wheel
    assert wheel.deadline(7) is None


def test_discard() -> None:
    wheel = KeyedWheel()
    wheel.upsert(7, 5 * TICK)
    assert wheel.discard(7)
    assert not wheel.discard(7)
    assert wheel.advance(9 * TICK) == []
    assert wheel.upsert(7, 10 * TICK)
    assert wheel.advance(10 * TICK) == [7]


def test_refreshing_a_horizon_again_changes_nothing() -> None:
    wheel = KeyedWheel()
    keys = array("q", range(50_000))
    deadlines = array("q", [TICK * (1 + key * 7919 % 500_000) for key in keys])
    assert wheel.upsert_many(keys, deadlines) == 50_000
    before = wheel.stats()
    assert wheel.upsert_many(keys, deadlines) == 0
    assert wheel.stats() == before
    wheel.check()
    assert wheel.discard_many(keys[:100]) == 100
    assert wheel.discard_many(keys[:200]) == 100
    wheel.check()
    expected = sorted((deadlines[key], key) for key in keys[200:])
    assert wheel.advance(500_001 * TICK) == [key for _, key in expected]
    wheel.check()


def test_the_index_grows_and_shrinks_with_its_keys() -> None:
    wheel = KeyedWheel()
    shuffled = random.Random(4)
    keys = array("q", [shuffled.getrandbits(64) - (1 << 63) for _ in range(100_000)])
    deadlines = array("q", [TICK] * len(keys))
    assert wheel.upsert_many(keys, deadlines) == len(keys)
    wheel.check()
    assert all(key in wheel for key in keys[::1_000])
    assert wheel.discard_many(keys) == len(keys)
    wheel.check()
    assert len(wheel) == 0
    assert wheel.upsert(keys[0], TICK)
    wheel.clear()
    assert keys[0] not in wheel
    assert wheel.upsert(keys[0], TICK)
    wheel.check()


def test_a_key_twice_in_one_batch_counts_once() -> None:
    wheel = KeyedWheel()
    assert wheel.upsert_many(array("q", [1, 1, 2]), array("q", [5, 9 * TICK, TICK])) == 2
    assert wheel.advance(TICK) == [2]
    assert wheel.advance(9 * TICK) == [1]


def test_advance_into_a_buffer_of_keys() -> None:
    wheel = KeyedWheel()
    wheel.upsert_many(array("q", [1, 2, 3]), array("q", [TICK] * 3))
    keys = np.zeros(2, dtype=np.int64)
    assert wheel.advance_into(TICK, keys) == 2
    assert keys.tolist() == [1, 2]
    assert 1 not in wheel
    assert 3 in wheel
    wheel.check()


def test_deadlines_come_out_beside_their_keys() -> None:
    wheel = UUIDWheel()
    wheel.upsert(bytes(16), 3)
    wheel.upsert(bytes(15) + b"a", TICK + 7)
    wheel.upsert(bytes(16), TICK + 5)
    keys = bytearray(32)
    deadlines = array("q", [0, 0])
    assert wheel.advance_into(9 * TICK, keys, deadlines) == 2
    assert {keys[15]: deadlines[0], keys[31]: deadlines[1]} == {0: TICK + 5, 97: TICK + 7}
    wheel.check()


def test_deadlines_need_as_much_room_as_keys() -> None:
    wheel = KeyedWheel()
    wheel.upsert(1, TICK)
    with pytest.raises(ValueError, match="deadlines_ns"):
        wheel.advance_into(TICK, array("q", [0, 0]), array("q", [0]))
    assert 1 in wheel


def test_uuids_go_in_and_their_bytes_come_out() -> None:
    wheel = UUIDWheel()
    ids = [uuid.UUID(int=(7919 * i) << 64 | i) for i in range(1, 20)]
    for number, job in enumerate(ids):
        assert wheel.upsert(job, number * TICK)
        assert not wheel.upsert(job.bytes, number * TICK)
    assert ids[3] in wheel
    assert ids[3].bytes in wheel
    assert wheel.discard(ids[3])
    wheel.check()
    assert wheel.advance(100 * TICK) == [job.bytes for job in ids if job != ids[3]]


def test_keys_that_differ_in_one_half_only() -> None:
    wheel = UUIDWheel()
    keys = [bytes(8) + bytes([i]) * 8 for i in range(5)] + [
        bytes([i]) * 8 + bytes(8) for i in range(1, 5)
    ]
    assert wheel.upsert_many(b"".join(keys), array("q", [TICK] * 9)) == 9
    assert wheel.advance(TICK) == keys


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, lambda raw: np.frombuffer(raw, "S16")]
)
def test_a_batch_of_uuids_is_any_buffer_with_16_bytes_for_each(kind: type[bytes]) -> None:
    wheel = UUIDWheel()
    raw = b"".join(uuid.UUID(int=i + (1 << 127)).bytes for i in range(1, 4))
    assert wheel.upsert_many(kind(raw), array("q", [TICK] * 3)) == 3
    out = bytearray(48)
    assert wheel.advance_into(TICK, out) == 3
    assert out == raw


def test_a_buffer_of_uuids_need_not_be_aligned() -> None:
    wheel = UUIDWheel()
    raw = bytes(range(1, 36))
    assert wheel.upsert_many(memoryview(raw)[3:35], array("q", [TICK] * 2)) == 2
    assert wheel.discard_many(memoryview(raw)[3:19]) == 1
    out = bytearray(36)
    assert wheel.advance_into(TICK, memoryview(out)[3:35]) == 1
    assert out[3:19] == raw[19:35]


def test_keys_other_than_uuids() -> None:
    wheel = UUIDWheel()
    with pytest.raises(ValueError, match="key must have 16 bytes, and has 3"):
        wheel.upsert(b"abc", 1)
    with pytest.raises(TypeError, match=r"key must be a uuid\.UUID or 16 bytes, not str"):
        wheel.upsert("abc", 1)  # type: ignore[arg-type] # on purpose
    with pytest.raises(ValueError, match="keys must hold 16 bytes for each key, and has 17"):
        wheel.upsert_many(bytes(17), array("q", [1]))
