"""Jobs without a further due time finish, and delay no result."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from wheelsched.config import ShardConfig
from wheelsched.core.model import RunKey
from wheelsched.shard.runs.registry import RunRegistry
from wheelsched.shard.settling.finish import EndingJobs, Finish
from wheelsched.testing import VirtualClock
from wheelsched.values.duration import SECOND

BATCH = ShardConfig().settle.batch


async def test_results_that_come_meanwhile_go_first() -> None:
    clock = VirtualClock(10**15)
    results: Any = SimpleNamespace(runs=0)
    finished: list[UUID] = []

    async def finish(job_ids: Collection[UUID]) -> None:
        finished.extend(job_ids)
        results.runs = BATCH

    registry = RunRegistry(most=1)
    ending = EndingJobs(registry)
    for number in range(3 * BATCH):
        ending.put(UUID(int=number))
    context: Any = SimpleNamespace(
        clock=clock,
        config=ShardConfig(),
        store=SimpleNamespace(finish=finish),
        registry=registry,
    )
    finishing = asyncio.ensure_future(Finish(context, ending, results).run())
    for batches in range(1, 4):
        await clock.advance(SECOND * 1_000)
        assert len(finished) == batches * BATCH
        results.runs = 0
    finishing.cancel()
    assert not ending.finishing


async def test_orphans_are_adopted_before_jobs_are_finished() -> None:
    clock = VirtualClock(10**15)
    finished: list[UUID] = []

    async def finish(job_ids: Collection[UUID]) -> None:
        finished.extend(job_ids)

    registry = RunRegistry(most=1)
    ending = EndingJobs(registry)
    ending.put(UUID(int=1))
    registry.orphans.add(RunKey(UUID(int=2), 0), partition=0)
    registry.orphans.enqueue(UUID(int=2))
    context: Any = SimpleNamespace(
        clock=clock,
        config=ShardConfig(),
        store=SimpleNamespace(finish=finish),
        registry=registry,
    )
    results: Any = SimpleNamespace(runs=0)
    finishing = asyncio.ensure_future(Finish(context, ending, results).run())
    await clock.advance(5 * SECOND * 1_000)
    assert not finished
    (orphaned,) = registry.orphans.take_earliest(1)
    registry.orphans.adopted(orphaned)
    await clock.advance(SECOND * 1_000)
    assert finished == [UUID(int=1)]
    finishing.cancel()
