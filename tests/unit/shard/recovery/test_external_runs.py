"""Runs that a worker or another shard has in hand."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.unit.shard.armed_runs import armed

from wheelsched.config import ShardConfig
from wheelsched.core.lease import LeaseTerms
from wheelsched.core.model import RunKey
from wheelsched.core.partition import partition_of
from wheelsched.flow import Inbox
from wheelsched.ports import Checked, Lease, PartitionOwner
from wheelsched.shard.ownership.ownership import Ownership
from wheelsched.shard.queues import ExternalRun
from wheelsched.shard.recovery.external_runs import ExternalRuns
from wheelsched.shard.runs.handed_out import HandedOutRuns
from wheelsched.testing import VirtualClock
from wheelsched.values.duration import SECOND


async def test_a_run_that_was_accepted_just_before_a_hand_over_is_not_watched() -> None:
    clock = VirtualClock(10**15)
    terms = LeaseTerms(ttl_us=5 * SECOND, margin_us=SECOND)
    ownership = Ownership(Lease(UUID(int=1), 0), terms, clock)
    given, kept = armed(0, job_id=UUID(int=1)), armed(0, job_id=UUID(int=2))
    partitions = {partition_of(run.key.job_id) for run in (given, kept)}
    assert len(partitions) == 2
    ownership.gain(PartitionOwner(each, UUID(int=1), 1, 0) for each in partitions)
    looked_at: set[RunKey] = set()

    async def revalidate(keys: Collection[RunKey]) -> list[Checked]:
        looked_at.update(keys)
        return []

    context: Any = SimpleNamespace(
        clock=clock,
        config=ShardConfig(),
        ownership=ownership,
        registry=SimpleNamespace(end=lambda _: None),
        store=SimpleNamespace(revalidate=revalidate),
    )
    queues: Any = SimpleNamespace(accepted=Inbox[ExternalRun](10), handed_out=HandedOutRuns())
    external_runs = ExternalRuns(context, queues)
    watching = asyncio.ensure_future(external_runs.run())
    await clock.advance(0)
    for run in (given, kept):
        queues.accepted.put(ExternalRun(run))
    handed_over = [partition_of(given.key.job_id)]
    ownership.drop(handed_over)
    await external_runs.forget(handed_over)
    await clock.advance(10 * SECOND * 1_000)
    watching.cancel()
    assert looked_at == {kept.key}
