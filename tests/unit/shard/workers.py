"""Workers for the pipeline's world: handlers for `World.handler`."""

from collections.abc import Sequence

from tests.unit.shard.world import World

from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Succeeded
from wheelsched.ports import Callback, Route


async def accepting(_: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
    return [Accepted()] * len(callbacks)


async def gone(_: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
    return [Gone(error="no more")] * len(callbacks)


class Failing:
    """A worker that fails this many times, and then succeeds."""

    def __init__(self, times: int) -> None:
        self.orphans = times

    async def __call__(self, _: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        self.orphans -= 1
        if self.orphans >= 0:
            return [Failed(error="not today", http_status=503)] * len(callbacks)
        return [Succeeded(http_status=200)] * len(callbacks)


class Slow:
    """A worker that takes this many seconds."""

    def __init__(self, world: World, seconds: float) -> None:
        self._world = world
        self._seconds = seconds

    async def __call__(self, _: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        await self._world.clock.sleep(int(self._seconds * 1e9))
        return [Succeeded(http_status=200)] * len(callbacks)
