"""Stage *plan*: drafts that an open transaction has locked do not block others."""

from uuid import uuid4

import pytest
from tests.unit.shard.world import World

from wheelsched.config import LoadConfig
from wheelsched.core.model import JobState
from wheelsched.ports import JobFilter, Lease, Plan, Planned

LOCKED = "job 0"


async def test_a_locked_draft_does_not_block_later_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World() as world:
        write = world.store.plans.plan

        async def passing_by(lease: Lease, plans: list[Plan]) -> Planned:
            return await write(lease, [each for each in plans if each.draft.name != LOCKED])

        monkeypatch.setattr(world.store.plans, "plan", passing_by)
        for number in range(3 * LoadConfig().plan_batch):
            document: dict[str, object] = {
                "name": f"job {number}",
                "schedule": "@daily",
                "target": {"url": "http://worker.example/"},
            }
            world.store.application.schedule(world.caller, uuid4(), document)
        world.start()
        await world.advance(LoadConfig().replan_us / 2_000_000)
        wanted = JobFilter(state=JobState.UNPLANNED)
        left = await world.store.jobs.list_jobs(world.caller, wanted, 9)
        assert [draft.name for draft in left] == [LOCKED]
