"""The pipeline when events happen in an unfortunate order."""

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec.structs import replace
from tests.unit.shard.workers import accepting
from tests.unit.shard.world import START_US, World

from wheelsched.config import ShardConfig
from wheelsched.core.model import RunKey, RunState
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.policies.policy import (
    MisfirePolicy,
    OnMisfire,
    OnOverlap,
    OverlapPolicy,
    RetryPolicy,
)
from wheelsched.ports import (
    Adoption,
    Callback,
    Checked,
    Claim,
    Ending,
    Lease,
    Prepared,
    Route,
    Settled,
)
from wheelsched.schedule.parse import parse
from wheelsched.values.duration import SECOND


async def test_the_next_owner_also_fails_a_worker_without_heartbeats(world: World) -> None:
    world.handler = accepting
    job = await world.register("+5", timeout_us=20 * SECOND, retry=RetryPolicy(max_attempts=1))
    world.start("a")
    await world.advance(8)
    ((_, callback),) = world.arrived
    assert await world.store.history.heartbeat(world.caller, callback.key, callback.token)
    await world.kill("a")
    world.start("b")
    await world.advance(15)  # taken over, and heard of less than 20 seconds ago
    assert await world.states(job) == [RunState.RUNNING]
    await world.advance(10)
    assert await world.states(job) == [RunState.DEAD]


async def test_a_change_during_a_claim_is_not_lost(world: World) -> None:
    job = await world.register("10 */5 * * * *")
    arm = world.store.timers.arm
    edited: list[float] = []

    async def arm_slowly(lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        lost = await arm(lease, claims)
        if not edited:
            edited.append(world.now_s)
            current = await world.store.jobs.get(world.caller, job.job_id)
            spec = parse("*/5 * * * * *", timezone="UTC", now_us=world.now_us())
            new = replace(current, spec=spec, version=current.version + 1)
            due_us = START_US + 15 * SECOND
            await world.store.jobs.edit(world.caller, new, due_us, is_rescheduled=True)
            await world.clock.sleep(20_000_000)
        return lost

    world.link.timers.arm = arm_slowly
    world.start()
    await world.advance(21)
    assert [round(at_s) for at_s in world.times if at_s > 11] == [15, 20]


async def test_a_late_read_of_an_old_attempt_does_not_end_a_newer_one(world: World) -> None:
    job = await world.register("*/10 * * * * *", retry=RetryPolicy(initial_us=1, max_us=1))
    live: list[RunKey] = []
    most = 0

    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        nonlocal most
        live.append(callbacks[0].key)
        most = max(most, len(live))
        try:
            is_first = callbacks[0].attempt == 1 and world.now_s < 15
            await world.clock.sleep(1_000_000_000 if is_first else 15_000_000_000)
            return [Failed(error="no") if is_first else Succeeded(http_status=200)]
        finally:
            live.remove(callbacks[0].key)

    revalidate = world.store.runs.revalidate

    async def recheck_slowly(keys: Sequence[RunKey]) -> list[Checked]:
        await world.clock.sleep(1_500_000_000)
        return await revalidate(keys)

    world.handler = work
    world.link.runs.revalidate = recheck_slowly
    world.start()
    await world.advance(10.5)
    current = await world.store.jobs.get(world.caller, job.job_id)
    new = replace(current, priority=5, version=current.version + 1)
    await world.store.jobs.edit(world.caller, new, None, is_rescheduled=False)
    await world.advance(20)
    assert most == 1


async def test_a_run_between_its_attempts_stays_live_when_its_job_is_edited(
    world: World,
) -> None:
    """Its next attempt is armed and rebuilt; the run that is due before that is skipped."""

    async def fail_once(route: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        if callbacks[0].key.due_us == START_US + 4 * SECOND and callbacks[0].attempt == 1:
            return [Failed(error="busy", retry_after_us=1_500_000)]
        return [Succeeded(http_status=200)]

    world.handler = fail_once
    job = await world.register("* * * * * *", retry=RetryPolicy(initial_us=1_000))
    world.start()
    await world.advance(4.7)
    new = replace(job, priority=5, version=job.version + 1)
    await world.store.jobs.edit(world.caller, new, None, is_rescheduled=False)
    await world.advance(1.2)
    states = {run.due_us: run.state for run in await world.runs(job)}
    assert states[START_US + 4 * SECOND] is RunState.SUCCEEDED
    assert states[START_US + 5 * SECOND] is RunState.SKIPPED


async def test_a_cancelled_run_leaves_its_queued_batch(world: World) -> None:
    cancelled, other = await world.register_many(["+5", "+5"], batch=10)
    carry = world.dispatcher.carry

    async def connect_slowly(
        route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> list[Outcome] | None:
        await world.clock.sleep(3_000_000_000)
        return await carry(route, batch, begin)

    world.dispatcher.is_connected = lambda: False
    world.dispatcher.carry = connect_slowly  # type: ignore[method-assign] # slower on purpose
    world.start()
    await world.advance(6)
    await world.store.history.cancel(world.caller, RunKey(cancelled.job_id, START_US + 5 * SECOND))
    await world.advance(10)
    assert {callback.key.job_id for _, callback in world.arrived} == {other.job_id}


async def test_a_run_that_waits_for_a_carried_run_goes_when_it_has_ended(world: World) -> None:
    queue = OverlapPolicy(policy=OnOverlap.QUEUE)
    await world.register("*/10 * * * * *", overlap=queue, timeout_us=600 * SECOND)

    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if world.now_s < 15:
            await world.clock.sleep(300_000_000_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    adopt = world.store.runs.adopt

    async def adopt_too_late(lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        for adoption in adoptions:  # the last word of whoever carried it comes just before
            succeeded = Ending(state=RunState.SUCCEEDED)
            ended = Settled(adoption.key, adoption.old_token, succeeded)
            await world.store.runs.settle([ended])
        return await adopt(lease, adoptions)

    world.handler = work
    world.start("a")
    await world.advance(12)
    world.start("b")
    await world.advance(10)
    world.shards["a"][0].stop()
    await world.advance(14)
    world.link.runs.adopt = adopt_too_late
    await world.kill("a")
    count = len(world.arrived)
    await world.advance(100)
    assert len(world.arrived) - count > 10


async def test_a_hanging_target_delays_only_itself(world: World) -> None:
    """It delays neither other tenants at the same host, nor its own tenant at other hosts."""
    other = await world.add_tenant(UUID(int=2), "second")
    hanging, elsewhere = "http://hanging.example/", "http://elsewhere.example/"
    places = ShardConfig().fairness.in_flight_per_origin

    async def handle(route: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        if route.origin in hanging and route.tenant_id == world.tenant_id:
            await world.clock.sleep(60 * SECOND * 1_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = handle
    await world.register_many(["+5"] * (places + 100), "hanging", url=hanging)
    await world.register_many(["+6"] * 50, "own", url=elsewhere)
    await world.register_many(["+6"] * 50, "same", url=hanging, caller=other)
    await world.register_many(["+6"] * 50, "other", url=elsewhere, caller=other)
    world.start()
    await world.advance(7)
    arrived = Counter(callback.job_name.split("-")[0] for _, callback in world.arrived)
    assert arrived == {"hanging": places, "own": 50, "same": 50, "other": 50}
    assert all(at_s < 6.1 for at_s, _ in world.arrived)


async def test_a_lost_claim_with_only_a_skip_is_repeated(world: World) -> None:
    policy = MisfirePolicy(policy=OnMisfire.SKIP, grace_us=SECOND)
    job = await world.register("*/10 * * * * *", misfire=policy)
    await world.advance(25)
    arm = world.store.timers.arm
    lost: list[Claim] = []

    async def lose(lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        """As if the job had been edited meanwhile."""
        if lost:
            return await arm(lease, claims)
        lost.extend(claims)
        return {claim.key for claim in claims}

    world.link.timers.arm = lose
    world.start()
    await world.advance(1.5)
    assert [claim.runs for claim in lost] == [()]
    skipped, *_ = await world.runs(job)
    assert skipped.missed_count == 2
