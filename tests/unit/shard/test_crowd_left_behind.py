"""A shard dies with many armed runs: what the next owner does first."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

import pytest
from tests.unit.shard.world import START_US, World

from wheelsched.config import LeadConfig, ShardConfig
from wheelsched.core.duration import SECOND
from wheelsched.core.model import Job, JobState, RunKey, RunState, SkipReason, Trigger
from wheelsched.core.policy import OnOverlap, OverlapPolicy
from wheelsched.ports import Adoption, Callback, Checked, Lease, RequestedRun
from wheelsched.shard import sweep, take_up

CROWD = 3_000
CROWDED_S = 20
KILLED_S = 19.9
FEW = 20  # adoptions that are quick; more of them take a while
SLOW_NS = 1_000_000_000
BATCH = 50  # runs taken up at once, so that there are many
WITH_SOME_LEFT_S = 33  # when some of the crowd is adopted
OFTEN = ShardConfig(refresh_us=3 * SECOND)  # compares what it knows, and marks, this often


class Crowded(World):
    """A world in which many jobs are due at one instant, and whose store adopts slowly."""

    def __init__(self) -> None:
        super().__init__()
        self._adopt = self.store.runs.adopt
        self.store.runs.adopt = self._adopt_slowly  # type: ignore[method-assign] # on purpose
        self.adopted: list[tuple[float, RunKey]] = []

    async def _adopt_slowly(self, lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        lost = await self._adopt(lease, adoptions)
        if len(adoptions) > FEW:
            await self.clock.sleep(SLOW_NS)
        self.adopted += [
            (self.now_s, adoption.key) for adoption in adoptions if adoption.key not in lost
        ]
        return lost

    async def crash_before_the_crowd(self, config: ShardConfig | None = None) -> list[Job]:
        """Two shards; one dies when the crowd is armed. Gives the crowd."""
        self.start("a")
        self.start("b", config)
        crowd = await self.register_many([f"+{CROWDED_S}"] * CROWD, "crowd")
        await self.advance(KILLED_S - self.now_s)
        await self.kill("a")
        return crowd

    def arrivals(self, job: Job, after_s: float) -> list[float]:
        return [
            at_s
            for at_s, callback in self.arrived
            if callback.key.job_id == job.job_id and at_s > after_s
        ]

    def callbacks(self, job: Job) -> list[Callback]:
        return [callback for _, callback in self.arrived if callback.key.job_id == job.job_id]


def of_the_crowd(job: Job) -> RunKey:
    """The one run of a job of the crowd."""
    return RunKey(job.job_id, START_US + CROWDED_S * SECOND)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crowded]:
    monkeypatch.setattr(take_up, "BATCH", BATCH)
    async with Crowded() as world:
        yield world


@pytest.mark.parametrize("policy", list(OnOverlap))
async def test_the_crowd_of_a_dead_shard_stands_in_nobodys_way(
    world: Crowded, policy: OnOverlap
) -> None:
    busy = await world.register_many(
        ["* * * * * *"] * 20, "busy", overlap=OverlapPolicy(policy=policy)
    )
    crowd = await world.crash_before_the_crowd()
    await world.advance(100)
    for job in busy:
        times = world.arrivals(job, after_s=KILLED_S)
        assert times[0] < KILLED_S + 8  # what it had armed, or the first that is new
        assert times[1] < KILLED_S + 8.5
        assert not [at_s for at_s in times if at_s > KILLED_S + 9 and at_s % 1 > 0.2]
        due_us = [callback.key.due_us for callback in world.callbacks(job)]
        assert due_us == sorted(due_us)
    last_s = max(at_s for at_s, _ in world.adopted)
    assert last_s > KILLED_S + 15  # so there was a crowd to stand in their way
    arrived = Counter(key.job_id for key in world.keys.elements())
    assert {arrived[job.job_id] for job in crowd} == {1}


async def test_who_adopts_may_die_over_it(world: Crowded) -> None:
    """The third owner finds what the second had not come to, whatever that has marked."""
    crowd = await world.crash_before_the_crowd(OFTEN)
    await world.advance(WITH_SOME_LEFT_S - world.now_s)
    assert 0 < len(world.adopted) < CROWD // 3
    await world.kill("b")
    world.start("c")
    await world.advance(100)
    assert world.keys.keys() == {of_the_crowd(job) for job in crowd}
    assert {state for job in crowd[::300] for state in await world.states(job)} == {
        RunState.SUCCEEDED
    }


async def test_a_hand_over_in_the_middle_sends_nothing_twice(world: Crowded) -> None:
    crowd = await world.crash_before_the_crowd()
    await world.advance(WITH_SOME_LEFT_S - world.now_s)
    before = len(world.adopted)
    world.start("c")
    await world.advance(5)
    await world.stop("b")
    assert before < CROWD // 3
    await world.advance(100)
    assert world.keys == Counter(of_the_crowd(job) for job in crowd)


async def test_a_job_that_is_deleted_before_it_is_taken_up_does_not_fire(world: Crowded) -> None:
    crowd = await world.crash_before_the_crowd()
    await world.advance(WITH_SOME_LEFT_S - world.now_s)
    known = world.keys.keys() | {key for _, key in world.adopted}
    left = [job for job in crowd if of_the_crowd(job) not in known]
    deleted, *others = left
    await world.store.jobs.delete(world.caller, deleted.job_id)
    states = {(await world.store.jobs.get(world.caller, job.job_id)).state for job in others}
    assert states == {JobState.ACTIVE}  # its run has not ended, so neither has the job
    await world.advance(100)
    expected = {of_the_crowd(job) for job in crowd if job is not deleted}
    assert world.keys.keys() == expected
    (run,) = await world.runs(deleted)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.DELETED)


async def test_a_run_that_is_asked_for_waits_for_those_of_its_job_only(world: Crowded) -> None:
    crowd = await world.crash_before_the_crowd()
    await world.advance(WITH_SOME_LEFT_S - world.now_s)
    known = world.keys.keys() | {key for _, key in world.adopted}
    job = [job for job in crowd if of_the_crowd(job) not in known][-1]
    asked = RunKey(job.job_id, world.now_us())
    requested = RequestedRun(key=asked, trigger=Trigger.MANUAL)
    await world.store.history.request(world.caller, [requested])
    await world.advance(1)
    assert [callback.key for callback in world.callbacks(job)] == [of_the_crowd(job), asked]
    assert len(world.adopted) < CROWD // 3


async def test_runs_of_one_job_on_many_pages_are_taken_up_all(
    world: Crowded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes up a part of a job while the rest of it is still to be read."""
    runs = world.store.runs
    list_unfinished, recheck = runs.list_unfinished, runs.recheck

    async def list_slowly(
        lease: Lease,
        partitions: Collection[int],
        limit: int,
        after: Mapping[int, RunKey] | None = None,
        **named: bool,
    ) -> list[RunKey]:
        await world.clock.sleep(100_000_000)
        return await list_unfinished(lease, partitions, limit, after, **named)

    async def recheck_slowly(keys: Collection[RunKey]) -> list[Checked]:
        await world.clock.sleep(250_000_000)
        return await recheck(keys)

    monkeypatch.setattr(runs, "list_unfinished", list_slowly)
    monkeypatch.setattr(runs, "recheck", recheck_slowly)
    monkeypatch.setattr(sweep, "PAGE", 7)
    beside = OverlapPolicy(policy=OnOverlap.ALLOW)
    jobs = await world.register_many(["*/2 * * * * *"] * 20, "busy", overlap=beside)
    world.start("a", ShardConfig(lead=LeadConfig(least_us=10 * SECOND)))
    await world.advance(20.5)
    await world.kill("a")  # each of its jobs has five runs that are armed
    shard = world.start("b")
    await world.advance(25)  # and no look at what was forgotten
    assert shard.vitals.runs.left_behind == 0
    for job in jobs:
        past = [run.state for run in await world.runs(job) if run.due_us <= START_US + 40 * SECOND]
        assert past == [RunState.SUCCEEDED] * 20
