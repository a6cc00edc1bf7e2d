"""Heartbeats and outcomes that workers report in batches, on memory and on Postgres."""

from uuid import uuid4

from tests.contract.conftest import MINUTE_US, World

from wheelsched.core.model import RunKey, RunState
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.ports import Adoption, Checked, Hint, Lease
from wheelsched.ports.work import Attempted, Held, Receipt

HELD, NOT_HELD = Held(is_held=True), Held(is_held=False)


async def armed(world: World, lease: Lease, name: str) -> Attempted:
    job = await world.register(world.now_us, name)
    return Attempted(*await world.arm(lease, job, world.now_us))


async def checked(world: World, key: RunKey) -> Checked:
    (found,) = await world.runs.revalidate([key])
    return found


async def test_the_heartbeat_of_a_run_that_was_given_back_is_forgotten(world: World) -> None:
    """A later heartbeat, of the next worker, is kept; so is that of another attempt."""
    lease = await world.own_all()
    attempts = [await armed(world, lease, name) for name in "abc"]
    await world.history.heartbeats(world.caller, attempts, [MINUTE_US] * 3)
    heard_us = [(await checked(world, each.key)).heartbeat_at_us or 0 for each in attempts]
    other = Attempted(attempts[2].key, attempts[2].token - 1)
    until_us = [heard_us[0], heard_us[1] - 1, heard_us[2]]
    given = dict(zip([attempts[0], attempts[1], other], until_us, strict=True))
    for _ in range(2):
        await world.runs.forget_heartbeats(given)
        found = [await checked(world, each.key) for each in attempts]
        assert [each.heartbeat_at_us is None for each in found] == [True, False, False]
        assert [each.lease_us for each in found] == [None, MINUTE_US, MINUTE_US]


async def test_heartbeats_keep_runs_for_their_lease(world: World) -> None:
    lease = await world.own_all()
    attempts = [await armed(world, lease, name) for name in ("one", "two", "three")]
    leases_us = [30_000_000, 40_000_000]
    held = await world.history.heartbeats(world.caller, attempts[:2], leases_us)
    assert held == [HELD, HELD]
    for attempt, lease_us in zip(attempts[:2], leases_us, strict=True):
        found = await checked(world, attempt.key)
        assert found.heartbeat_at_us is not None
        assert found.lease_us == lease_us
    assert (await checked(world, attempts[2].key)).heartbeat_at_us is None


async def test_a_heartbeat_without_a_lease_keeps_its_run_for_the_timeout(world: World) -> None:
    attempt = await armed(world, await world.own_all(), "one")
    await world.history.heartbeats(world.caller, [attempt], [30_000_000])
    await world.history.heartbeats(world.caller, [attempt], [None])
    assert (await checked(world, attempt.key)).lease_us is None
    await world.history.heartbeats(world.caller, [attempt], [30_000_000])
    assert await world.history.heartbeat(world.caller, *attempt)
    assert (await checked(world, attempt.key)).lease_us is None


async def test_heartbeats_are_answered_in_order_also_if_one_is_repeated(world: World) -> None:
    lease = await world.own_all()
    one, two = await armed(world, lease, "one"), await armed(world, lease, "two")
    stale = Attempted(two.key, two.token - 1)
    held = await world.history.heartbeats(world.caller, [two, stale, one, two], [None] * 4)
    assert held == [HELD, NOT_HELD, HELD, HELD]
    assert await world.history.heartbeats(world.caller, [], []) == []


async def test_a_heartbeat_tells_that_the_run_was_cancelled(world: World) -> None:
    lease = await world.own_all()
    one, two = await armed(world, lease, "one"), await armed(world, lease, "two")
    await world.history.cancel(world.caller, one.key)
    held = await world.history.heartbeats(world.caller, [one, two], [None] * 2)
    assert held == [Held(is_held=False, is_cancelled=True), HELD]
    earlier = Attempted(one.key, one.token - 1)
    assert await world.history.heartbeats(world.caller, [earlier], [None]) == [NOT_HELD]


async def test_a_run_that_ended_or_was_taken_over_is_not_held(world: World) -> None:
    lease = await world.own_all()
    ended, taken = await armed(world, lease, "one"), await armed(world, lease, "two")
    await world.runs.settle([world.settled(*ended, RunState.SUCCEEDED)])
    await world.runs.adopt(lease, [Adoption(taken.key, taken.token, world.token())])
    unknown = Attempted(RunKey(uuid4(), world.now_us), 1)
    held = await world.history.heartbeats(world.caller, [ended, taken, unknown], [None] * 3)
    assert held == [NOT_HELD, NOT_HELD, NOT_HELD]


async def test_no_tenant_keeps_runs_of_another(world: World) -> None:
    attempt = await armed(world, await world.own_all(), "one")
    assert await world.history.heartbeats(world.other, [attempt], [None]) == [NOT_HELD]
    await world.history.cancel(world.caller, attempt.key)
    assert await world.history.heartbeats(world.other, [attempt], [None]) == [NOT_HELD]
    assert await world.history.read_live(world.other, [attempt.key]) == []


async def test_runs_are_read_with_the_policy_of_their_job(world: World) -> None:
    lease = await world.own_all()
    one, two = await armed(world, lease, "one"), await armed(world, lease, "two")
    await world.jobs.delete(world.caller, two.key.job_id)
    found = await world.history.read_live(world.caller, [one.key, two.key, RunKey(uuid4(), 1)])
    policies = {live.run.key: live.retry for live in found}
    assert policies == {one.key: RetryPolicy(), two.key: None}
    assert {live.run.token for live in found} == {one.token, two.token}


async def test_many_outcomes_are_written_and_each_is_answered(world: World) -> None:
    lease = await world.own_all()
    one, two, three = [await armed(world, lease, name) for name in ("one", "two", "three")]
    settled = [
        world.settled(*two, RunState.RETRYING, retry_at_us=world.now_us + MINUTE_US),
        world.settled(three.key, three.token - 1, RunState.SUCCEEDED),
        world.settled(*one, RunState.SUCCEEDED),
        world.settled(RunKey(uuid4(), world.now_us), 1, RunState.SUCCEEDED),
    ]
    receipts = [Receipt.WRITTEN, Receipt.STALE, Receipt.WRITTEN, Receipt.UNKNOWN]
    assert await world.history.answers(world.caller, settled) == receipts
    assert await world.history.answers(world.caller, settled) == receipts
    assert await world.state(one.key) is RunState.SUCCEEDED
    assert await world.state(two.key) is RunState.RETRYING
    assert await world.state(three.key) is RunState.ARMED
    assert await world.history.answers(world.caller, []) == []


async def test_two_outcomes_of_a_run_are_written_in_order(world: World) -> None:
    attempt = await armed(world, await world.own_all(), "one")
    failed = world.settled(*attempt, RunState.RETRYING, retry_at_us=world.now_us + MINUTE_US)
    done = world.settled(*attempt, RunState.SUCCEEDED)
    receipts = await world.history.answers(world.caller, [failed, done])
    assert receipts == [Receipt.WRITTEN, Receipt.WRITTEN]
    assert await world.state(attempt.key) is RunState.SUCCEEDED


async def test_no_tenant_ends_runs_of_another(world: World) -> None:
    attempt = await armed(world, await world.own_all(), "one")
    settled = world.settled(*attempt, RunState.SUCCEEDED)
    assert await world.history.answers(world.other, [settled]) == [Receipt.UNKNOWN]
    assert await world.state(attempt.key) is RunState.ARMED


async def test_outcomes_that_were_written_are_told_to_their_shards(world: World) -> None:
    lease = await world.own_all()
    one, two = await armed(world, lease, "one"), await armed(world, lease, "two")
    hints: list[Hint] = []
    source = await world.listen(hints.append)
    settled = [world.settled(*attempt, RunState.SUCCEEDED) for attempt in (one, two)]
    await world.history.answers(world.caller, settled)
    await source.confirm()
    assert {hint.job_id for hint in hints} == {one.key.job_id, two.key.job_id}
    await source.close()
