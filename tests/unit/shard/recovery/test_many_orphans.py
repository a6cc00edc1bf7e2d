"""A shard dies with many armed runs: the next owner does the urgent work first."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

import pytest
from tests.unit.shard.world import START_US, World

from wheelsched.config import LeadConfig, RecoveryConfig, ShardConfig
from wheelsched.core.model import Job, JobState, RunKey, RunState, SkipReason, Trigger
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.ports import Adoption, Callback, Checked, Lease, RequestedRun
from wheelsched.values.duration import SECOND

CROWD = 3_000
CROWDED_S = 20
KILLED_S = 19.9
FEW = 20  # adoptions that are quick; more of them take a while
SLOW_NS = 1_000_000_000
BATCH = 50  # runs adopted at once, so that there are many
WITH_SOME_LEFT_S = 33  # when some of the crowd is adopted
RECOVERY = RecoveryConfig(batch=BATCH)
OFTEN = ShardConfig(refresh_us=3 * SECOND, recovery=RECOVERY)  # compares and marks this often


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
        """Starts two shards; one dies when the hot second is armed. Returns its jobs."""
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
    """The only run of a job of the hot second."""
    return RunKey(job.job_id, START_US + CROWDED_S * SECOND)


@pytest.fixture
async def world() -> AsyncIterator[Crowded]:
    async with Crowded() as world:
        world.config = ShardConfig(recovery=RECOVERY)
        yield world


@pytest.mark.proof
@pytest.mark.parametrize("policy", list(OnOverlap))
async def test_many_orphans_of_a_dead_shard_do_not_delay_other_runs(
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


async def test_the_shard_that_adopts_may_die_too(world: Crowded) -> None:
    """The third owner finds the runs that the second did not adopt, whatever it has marked."""
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


async def test_a_job_that_is_deleted_before_its_adoption_does_not_fire(world: Crowded) -> None:
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


async def test_a_manual_run_waits_only_for_the_orphans_of_its_job(world: Crowded) -> None:
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


async def test_all_runs_of_a_job_on_many_pages_are_adopted(
    world: Crowded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part of a job is adopted while the rest of it is still to be read."""
    runs = world.store.runs
    list_unfinished, revalidate = runs.list_unfinished, runs.revalidate

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
        return await revalidate(keys)

    monkeypatch.setattr(runs, "list_unfinished", list_slowly)
    monkeypatch.setattr(runs, "revalidate", recheck_slowly)
    beside = OverlapPolicy(policy=OnOverlap.ALLOW)
    jobs = await world.register_many(["*/2 * * * * *"] * 20, "busy", overlap=beside)
    recovery = RecoveryConfig(batch=BATCH, page=7)
    world.config = ShardConfig(lead=LeadConfig(least_us=10 * SECOND), recovery=recovery)
    world.start("a")
    await world.advance(20.5)
    await world.kill("a")  # each of its jobs has five runs that are armed
    shard = world.start("b")
    await world.advance(25)  # and no look at what was forgotten
    assert shard.vitals.runs.orphans == 0
    for job in jobs:
        past = [run.state for run in await world.runs(job) if run.due_us <= START_US + 40 * SECOND]
        assert past == [RunState.SUCCEEDED] * 20


async def test_a_shard_that_may_arm_few_runs_adopts_many(world: Crowded) -> None:
    """Adopted runs are claimed already, and do not count against `max_armed`."""
    crowd = await world.register_many([f"+{CROWDED_S}"] * 400, "crowd")
    world.start("a")
    await world.advance(KILLED_S)
    await world.kill("a")
    world.start("b", ShardConfig(max_armed=100))
    await world.advance(30)
    assert world.keys == Counter(map(of_the_crowd, crowd))
