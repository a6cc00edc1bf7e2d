"""The pipeline among bad jobs, bad answers, a store that refuses, and a clock that steps."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NoReturn
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.unit.shard.workers import accepting
from tests.unit.shard.world import START_US, World

from wheelsched.config import ShardConfig
from wheelsched.core.duration import SECOND
from wheelsched.core.model import RunKey, RunState
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.policy import (
    MisfirePolicy,
    OnMisfire,
    OnOverlap,
    OverlapPolicy,
    RetryPolicy,
)
from wheelsched.core.registration import parse
from wheelsched.errors import StoreFault
from wheelsched.ports import (
    Adoption,
    Callback,
    Checked,
    Claim,
    ClaimedRetry,
    Ending,
    Lease,
    Prepared,
    Route,
    Settled,
)
from wheelsched.shard.fire import OUR_FAULT, Fire


class Stepping(World):
    """A world whose database clock can be set to another time."""

    shift_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.shift_us


@pytest.fixture
async def world() -> AsyncIterator[Stepping]:
    async with Stepping() as world:
        yield world


async def test_a_job_that_cannot_be_understood_stops_no_other(world: Stepping) -> None:
    await world.register("*/10 * * * * *", "good")
    bad = await world.register("*/10 * * * * *", "bad")
    jobs = world.store._tables.jobs
    jobs[bad.job_id] = replace(bad, spec=replace(bad.spec, timezone="Mars/Phobos"))
    world.start()
    await world.advance(25)
    assert [callback.job_name for _, callback in world.arrived] == ["good-0"] * 2
    jobs[bad.job_id] = bad
    await world.advance(60)
    assert "bad-0" in {callback.job_name for _, callback in world.arrived}


async def test_a_request_that_cannot_be_made_is_a_failed_attempt(world: Stepping) -> None:
    bad = await world.register("+10", "bad", retry=RetryPolicy(max_attempts=1))
    good = await world.register("+20", "good")
    carry = world.dispatcher.carry

    async def raising(
        route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> list[Outcome] | None:
        if world.now_s < 15:
            assert begin()
            raise RecursionError
        return await carry(route, batch, begin)

    world.dispatcher.carry = raising  # type: ignore[method-assign] # broken on purpose
    world.start()
    await world.advance(25)
    assert await world.states(bad) == [RunState.DEAD]
    assert await world.states(good) == [RunState.SUCCEEDED]


async def test_a_request_that_is_refused_at_once_is_a_failed_attempt(
    world: Stepping, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = await world.register("+10", retry=RetryPolicy(max_attempts=1))

    def raising(*_: object) -> NoReturn:
        raise RecursionError

    monkeypatch.setattr(world.dispatcher, "send", raising)
    world.start()
    await world.advance(12)
    (run,) = await world.runs(bad)
    assert (run.state, run.error) == (RunState.DEAD, OUR_FAULT)


@pytest.mark.parametrize("is_sent", [True, False])
async def test_a_report_that_cannot_be_made_ends_the_shard_and_is_not_forgotten(
    world: Stepping, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    def raising(*_: object) -> NoReturn:
        raise RecursionError

    job = await world.register("+10")
    world.start()
    with monkeypatch.context() as broken:
        broken.setattr(Fire, "_answered", raising)
        if not is_sent:
            broken.setattr(world.dispatcher, "send", raising)
        with pytest.raises(ExceptionGroup):
            await world.advance(12)
    del world.shards["a"]
    world.start("b")
    await world.advance(30)
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_an_edit_that_no_request_can_be_made_of_stops_no_other(world: Stepping) -> None:
    bad, _ = await world.register_many(["+5", "+6"])
    world.start()
    await world.advance(4.2)
    edited = replace(bad, version=bad.version + 1, idempotency_key="{{no_such_field}}")
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(5)
    assert world.times == [pytest.approx(6, abs=0.001)]
    (run,) = await world.runs(bad)
    assert run.state is RunState.DEAD
    assert "could not be made" in str(run.error)


async def test_a_claim_that_is_refused_is_not_sent_at_once_again(world: Stepping) -> None:
    bad = await world.register("+5", "bad")
    good = await world.register("+6", "good")
    arm, refused = world.store.timers.arm, []

    async def refuse(lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        if any(claim.job_id == bad.job_id for claim in claims):
            refused.append(world.now_s)
            raise StoreFault
        return await arm(lease, claims)

    world.line.timers.arm = refuse
    world.start()
    await world.advance(50)
    assert len(refused) < 10
    assert await world.states(good) == [RunState.SUCCEEDED]


async def test_a_retry_that_is_refused_stops_no_other(world: Stepping) -> None:
    async def fail_bad(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        is_bad = callbacks[0].job_name.startswith("bad")
        return [Failed(error="no")] if is_bad else [Succeeded(http_status=200)]

    world.handler = fail_bad
    bad = await world.register("+5", "bad")
    await world.register("*/10 * * * * *", "good")
    arm_retries = world.store.timers.arm_retries

    async def refuse(lease: Lease, retries: Sequence[ClaimedRetry]) -> object:
        if any(retry.key.job_id == bad.job_id for retry in retries):
            raise StoreFault
        return await arm_retries(lease, retries)

    world.line.timers.arm_retries = refuse
    world.start()
    await world.advance(61)
    assert [callback.job_name for _, callback in world.arrived].count("good-0") == 6


async def test_a_result_that_is_refused_makes_nobody_send_again(world: Stepping) -> None:
    bad = await world.register("+5", "bad", retry=RetryPolicy(max_attempts=1))
    settle = world.store.runs.settle

    async def refuse(settled: Sequence[Settled]) -> set[RunKey]:
        if any(outcome.key.job_id == bad.job_id for outcome in settled):
            raise StoreFault
        return await settle(settled)

    world.line.runs.settle = refuse
    world.start()
    await world.advance(300)
    assert world.times == [pytest.approx(5, abs=0.01)]


async def test_a_clock_that_is_set_back_stops_no_refresh(world: Stepping) -> None:
    world.start()
    await world.advance(5)
    world.shift_us = -3_600 * SECOND
    await world.advance(10)
    due_s = world.now_s + 900  # beyond the horizon: no hint tells of it
    await world.register(f"+{due_s}")
    await world.advance(1_000)
    assert world.times == [pytest.approx(due_s, abs=0.01)]


async def test_what_waits_for_its_turn_when_the_clock_is_set_back_waits_for_its_time(
    world: Stepping,
) -> None:
    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        await world.clock.sleep(16_000_000_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = work
    await world.register("every 10s", overlap=OverlapPolicy(policy=OnOverlap.QUEUE))
    world.start()
    await world.advance(20.5)
    world.shift_us = -30 * SECOND
    await world.advance(60)
    start_s = START_US / SECOND
    dues_s = [callback.key.due_us / SECOND - start_s for _, callback in world.arrived]
    assert dues_s[:2] == [10, 20]
    assert all(at_s >= due_s for at_s, due_s in zip(world.times, dues_s, strict=True))


async def test_a_clock_that_is_set_back_stops_no_takeover(world: Stepping) -> None:
    world.start("a")
    world.start("b")
    await world.advance(15)
    world.shift_us = -3_600 * SECOND
    await world.advance(30)
    await world.register_many(["*/10 * * * * *"] * 20)
    await world.kill("a")
    await world.advance(60)
    world.arrived.clear()
    await world.advance(30)
    assert len({callback.key.job_id for _, callback in world.arrived}) == 20


@pytest.mark.parametrize("shift_us", [3_600 * SECOND, -3_600 * SECOND])
async def test_a_clock_that_is_set_silences_no_worker(world: Stepping, shift_us: int) -> None:
    world.handler = accepting
    job = await world.register("+5", timeout_us=10 * SECOND)
    world.start()
    await world.advance(8)
    ((_, callback),) = world.arrived
    for number in range(12):
        assert await world.store.history.heartbeat(world.caller, callback.key, callback.token)
        if number == 4:
            world.shift_us = shift_us
        await world.advance(4)
    assert await world.states(job) == [RunState.RUNNING]
    assert len(world.arrived) == 1


@pytest.mark.parametrize("has_heartbeat", [False, True])
async def test_a_clock_that_is_set_back_hides_no_silence(
    world: Stepping, has_heartbeat: bool
) -> None:
    world.handler = accepting
    job = await world.register("+5", timeout_us=10 * SECOND, retry=RetryPolicy(max_attempts=1))
    world.start()
    await world.advance(8)
    ((_, callback),) = world.arrived
    if has_heartbeat:
        assert await world.store.history.heartbeat(world.caller, callback.key, callback.token)
    world.shift_us = -3_600 * SECOND
    await world.advance(25)
    assert await world.states(job) == [RunState.DEAD]


async def test_a_silent_worker_is_left_by_the_next_owner_too(world: Stepping) -> None:
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


async def test_a_change_while_a_claim_is_answered_is_not_lost(world: Stepping) -> None:
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

    world.line.timers.arm = arm_slowly
    world.start()
    await world.advance(21)
    assert [round(at_s) for at_s in world.times if at_s > 11] == [15, 20]


async def test_a_late_look_at_an_old_attempt_ends_no_newer_one(world: Stepping) -> None:
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

    recheck = world.store.runs.recheck

    async def recheck_slowly(keys: Sequence[RunKey]) -> list[Checked]:
        await world.clock.sleep(1_500_000_000)
        return await recheck(keys)

    world.handler = work
    world.line.runs.recheck = recheck_slowly
    world.start()
    await world.advance(10.5)
    current = await world.store.jobs.get(world.caller, job.job_id)
    new = replace(current, priority=5, version=current.version + 1)
    await world.store.jobs.edit(world.caller, new, None, is_rescheduled=False)
    await world.advance(20)
    assert most == 1


async def test_a_run_between_its_attempts_stays_live_when_its_job_is_edited(
    world: Stepping,
) -> None:
    """Its next attempt is armed and made anew; the run that is due before that is skipped."""

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


async def test_what_is_cancelled_leaves_its_batch_even_then(world: Stepping) -> None:
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


async def test_who_waits_for_a_carried_run_goes_on_when_it_has_ended(world: Stepping) -> None:
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
    world.line.runs.adopt = adopt_too_late
    await world.kill("a")
    count = len(world.arrived)
    await world.advance(100)
    assert len(world.arrived) - count > 10


async def test_a_target_that_hangs_hurts_only_itself(world: Stepping) -> None:
    """Neither another tenant at the same host, nor its own tenant at another."""
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


async def test_a_lost_claim_with_nothing_but_a_skip_is_made_again(world: Stepping) -> None:
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

    world.line.timers.arm = lose
    world.start()
    await world.advance(1.5)
    assert [claim.runs for claim in lost] == [()]
    skipped, *_ = await world.runs(job)
    assert skipped.missed_count == 2
