"""Calls to the store are retried until they succeed, under the current lease."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from uuid import UUID, uuid4

import pytest

from wheelsched.core.lease import LeaseTerms
from wheelsched.core.model import Run, RunKey, RunState
from wheelsched.errors import FenceRaised, LeaseLost, StoreFault, StoreTimeout, StoreUnavailable
from wheelsched.ports import Adoption, Checked, Ending, Lease, Mark, Renewal, Settled
from wheelsched.shard.ownership.ownership import Ownership
from wheelsched.shard.retrying_store import RetryingStore
from wheelsched.testing import MemoryStore, VirtualClock
from wheelsched.values.duration import SECOND
from wheelsched.vitals import Vitals

KEYS = [RunKey(UUID(int=number), 1) for number in range(5)]
OURS = Ending(state=RunState.SUCCEEDED)


class Bench:
    """An in-memory store with single calls replaced."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.stores = MemoryStore(lambda: self.clock.now_ns() // 1_000)
        terms = LeaseTerms(ttl_us=5 * SECOND, margin_us=SECOND)
        self.ownership = Ownership(Lease(uuid4(), fence=1), terms, self.clock)
        self.vitals = Vitals()
        self.store = RetryingStore(self.stores, self.ownership, self.clock, self.vitals, Random(0))

    async def wait_for(self, asked: Awaitable[object]) -> object:
        """Runs a call to its end, in virtual time."""
        task = asyncio.ensure_future(asked)
        for _ in range(100):
            await self.clock.advance(SECOND * 1_000)
            if task.done():
                break
        return await task


@pytest.fixture
def bench() -> Bench:
    return Bench()


def failing(
    times: int, error: Exception, answer: object = None
) -> tuple[list[tuple[object, ...]], Callable[..., Awaitable[object]]]:
    """A call that fails several times before it succeeds, and records its arguments."""
    asked: list[tuple[object, ...]] = []

    async def call(*arguments: object) -> object:
        asked.append(arguments)
        if len(asked) <= times:
            raise error
        return answer

    return asked, call


async def test_a_call_is_retried_until_it_succeeds(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, call = failing(3, StoreUnavailable(), [])
    monkeypatch.setattr(bench.stores.runs, "revalidate", call)
    assert await bench.wait_for(bench.store.revalidate(KEYS)) == []
    assert len(asked) == 4
    assert sum(bench.vitals.store.errors.values()) == 3


async def test_a_lost_lease_is_raised_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, call = failing(9, LeaseLost())
    monkeypatch.setattr(bench.stores.timers, "finish", call)
    with pytest.raises(LeaseLost):
        await bench.wait_for(bench.store.finish([]))
    assert len(asked) == 1


async def test_a_call_that_meets_a_raised_fence_is_retried_under_the_new_lease(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Lease(bench.ownership.lease.shard_id, fence=2)
    leases: list[Lease] = []

    async def finish(lease: Lease, _: object) -> None:
        leases.append(lease)
        if lease != new:
            bench.ownership.lease = new
            raise FenceRaised

    monkeypatch.setattr(bench.stores.timers, "finish", finish)
    await bench.wait_for(bench.store.finish([]))
    assert [lease.fence for lease in leases] == [1, 2]


async def test_only_the_item_at_fault_of_a_batch_is_rejected(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[RunKey] = []

    async def settle(settled: Sequence[Settled]) -> set[RunKey]:
        if any(one.key == KEYS[3] for one in settled):
            raise StoreFault
        written.extend(one.key for one in settled)
        return {KEYS[0]} & {one.key for one in settled}

    monkeypatch.setattr(bench.stores.runs, "settle", settle)
    settled = [Settled(key, 1, OURS) for key in KEYS]
    settlement = await bench.wait_for(bench.store.settle(settled))
    assert settlement == ({KEYS[0]}, {KEYS[3]})
    assert written == [KEYS[0], KEYS[1], KEYS[2], KEYS[4]]  # in the order in which they came


@pytest.mark.parametrize("is_ambiguous", [True, False])
async def test_a_claim_whose_answer_was_lost_counts_as_won(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_ambiguous: bool
) -> None:
    adoptions = [Adoption(key, 1, 7) for key in KEYS[:2]]
    asked, adopt = failing(1 if is_ambiguous else 0, StoreUnavailable(), set(KEYS[:2]))

    async def revalidate(keys: Sequence[RunKey]) -> list[Checked]:
        runs = [
            Run(
                job_id=key.job_id,
                due_us=key.due_us,
                tenant_id=UUID(int=9),
                state=RunState.ARMED,
                token=token,
            )
            for key, token in zip(KEYS, (7, 8), strict=False)
            if key in keys
        ]
        return [Checked(run=run, version=1, heartbeat_at_us=None) for run in runs]

    monkeypatch.setattr(bench.stores.runs, "adopt", adopt)
    monkeypatch.setattr(bench.stores.runs, "revalidate", revalidate)
    claimed = await bench.wait_for(bench.store.adopt(adoptions))
    assert claimed == ({KEYS[1]} if is_ambiguous else set(KEYS[:2]), set())
    assert len(asked) == 1 + is_ambiguous


async def test_a_page_that_was_too_large_is_not_retried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def too_slow(*arguments: int, **_: bool) -> list[RunKey]:
        asked.append(arguments[2])
        raise StoreTimeout

    monkeypatch.setattr(bench.stores.runs, "list_unfinished", too_slow)
    with pytest.raises(StoreTimeout):
        await bench.wait_for(bench.store.list_unfinished([1], 100, {}, is_first=False))
    assert asked == [100]


async def test_a_mark_is_not_repeated_after_an_outage(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that went back has forgotten ends, and the mark would hide their runs."""
    bench.ownership.renewed(0, bench.ownership.lease, Renewal(1, 1))
    asked, call = failing(1, StoreUnavailable())
    monkeypatch.setattr(bench.stores.timers, "advance", call)
    await bench.wait_for(bench.store.advance({7: Mark(1, 1)}))
    assert len(asked) == 1


async def test_no_mark_is_written_without_trust(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, call = failing(0, StoreUnavailable())
    monkeypatch.setattr(bench.stores.timers, "advance", call)
    await bench.store.advance({7: Mark(1, 1)})
    assert asked == []
