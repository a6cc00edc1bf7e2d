"""A run that is held for revalidation while a later run of its job comes due."""

from collections.abc import Collection

import pytest
from tests.unit.shard.workers import Slow
from tests.unit.shard.world import START_US, World

from wheelsched.core.model import Job, RunKey, RunState
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.ports import Checked
from wheelsched.shard.loading.hint_freshness import HintFreshness
from wheelsched.values.duration import SECOND

HELD_S, LATER_S = 10, 12


async def register_held(
    world: World, monkeypatch: pytest.MonkeyPatch, policy: OnOverlap, *, is_paused: bool = False
) -> Job:
    """A job whose first run is held for three seconds, beyond the time of the second."""
    job = await world.register(
        f"{HELD_S},{LATER_S} 0 * * * *", overlap=OverlapPolicy(policy=policy)
    )
    held_us = START_US + HELD_S * SECOND
    revalidate = world.store.runs.revalidate

    async def read_slowly(keys: Collection[RunKey]) -> list[Checked]:
        await world.clock.sleep(3 * SECOND * 1_000)
        checked = await revalidate(keys)
        return [check for check in checked if not is_paused or check.run.due_us != held_us]

    world.link.runs.revalidate = read_slowly
    monkeypatch.setattr(HintFreshness, "covers", lambda _, fire_at_us: fire_at_us != held_us)
    return job


def dues(world: World) -> list[int]:
    return [(callback.key.due_us - START_US) // SECOND for _, callback in world.arrived]


@pytest.mark.parametrize(
    ("policy", "sent", "states"),
    [
        (OnOverlap.QUEUE, [HELD_S, LATER_S], [RunState.SUCCEEDED, RunState.SUCCEEDED]),
        (OnOverlap.SKIP, [HELD_S], [RunState.SUCCEEDED, RunState.SKIPPED]),
        (OnOverlap.CANCEL, [LATER_S], [RunState.CANCELLED, RunState.SUCCEEDED]),
        (OnOverlap.ALLOW, [LATER_S, HELD_S], [RunState.SUCCEEDED, RunState.SUCCEEDED]),
    ],
)
async def test_a_later_run_does_not_overtake_it(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    policy: OnOverlap,
    sent: list[int],
    states: list[RunState],
) -> None:
    world.handler = Slow(world, 5)
    job = await register_held(world, monkeypatch, policy)
    world.start()
    await world.advance(40)
    assert dues(world) == sent
    assert await world.states(job) == states


@pytest.mark.parametrize("policy", OnOverlap)
async def test_a_later_run_goes_on_when_it_is_withdrawn(
    world: World, monkeypatch: pytest.MonkeyPatch, policy: OnOverlap
) -> None:
    await register_held(world, monkeypatch, policy, is_paused=True)
    world.start()
    await world.advance(40)
    assert dues(world) == [LATER_S]
