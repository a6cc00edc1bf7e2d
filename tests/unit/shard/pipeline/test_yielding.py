"""Whatever goes through everything that a shard knows lets the loop turn in between."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.unit.shard.world import World

from wheelsched.core.outcome import Outcome, Succeeded
from wheelsched.flow import SLICE, yielding
from wheelsched.ports import Callback, Route
from wheelsched.shard.loading.hint_freshness import Doubts
from wheelsched.shard.runs.registry import RunRegistry
from wheelsched.testing import VirtualClock

MANY = 2 * SLICE + 100


class Turns:
    """Counts what is called, in all and at most in one turn of the loop."""

    def __init__(self) -> None:
        self.total = self.most = self._now = 0

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object, **named: object) -> Any:
            if not self._now:
                asyncio.get_running_loop().call_soon(self._turn)
            self._now += 1
            self.total += 1
            self.most = max(self.most, self._now)
            return function(*arguments, **named)

        return call

    def _turn(self) -> None:
        self._now = 0


@pytest.fixture
def turns() -> Turns:
    return Turns()


async def test_what_is_there_at_the_beginning_comes_in_portions(turns: Turns) -> None:
    known = dict.fromkeys(range(MANY))
    look = turns.counting(known.pop)
    async for portion in yielding(VirtualClock(0), known):
        for item in portion:
            look(item)
        known[-portion[0] - 1] = None
    assert max(known) < 0
    assert turns.most == SLICE


async def test_a_listener_that_comes_back_looks_at_everything_in_portions(
    world: World, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly(_: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        await world.clock.sleep(3_000_000_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = slowly
    await world.register_many(["+5"] * MANY)
    world.start()
    await world.advance(5.5)  # most of them wait for a place
    world.link.is_deaf = True
    await world.advance(0.5)
    monkeypatch.setattr(Doubts, "changed", turns.counting(Doubts.changed))
    world.link.is_deaf = False
    await world.advance(2)
    assert turns.total >= MANY
    assert turns.most <= SLICE
    await world.advance(30)
    assert len(world.arrived) == len(world.keys) == MANY


async def test_partitions_are_handed_over_in_portions(
    world: World, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is sent meanwhile is sent once, by whoever has it."""
    await world.register_many([f"+{20 + number / 1_000}" for number in range(2 * MANY)])
    world.start("a")
    await world.advance(19)
    looked = turns.counting(RunRegistry.armed_of)
    monkeypatch.setattr(RunRegistry, "armed_of", looked)
    world.start("b")
    await world.advance(30)
    assert len(world.arrived) == len(world.keys) == 2 * MANY
    assert max(at_s for at_s, _ in world.arrived) < 20 + 2 * MANY / 1_000 + 0.1
    assert turns.total > SLICE
    assert turns.most <= SLICE
