"""`make walk`: the path of one ordinary cron run through the code, from its timer to its outcome.

A shard runs on the store in memory, in virtual time. First it is idle, and the tracer learns what
an idle shard does: it renews its lease, listens and refreshes. Then a timer comes within the
horizon, and the tracer records every step of the event loop that an idle shard does not take, until
the run is settled. Functions are listed in the order of their first call; the doubles of
`wheelsched.testing` are not part of the path.
"""

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby, pairwise
from types import CodeType, FrameType
from typing import NamedTuple

import structlog
from msgspec import Struct
from tests.unit.shard.world import World

from wheelsched.config import ShardConfig
from wheelsched.core.model import Run, RunState
from wheelsched.values.duration import SECOND

PACKAGE = "wheelsched"
DOUBLES = "wheelsched.testing"
SHARD = "wheelsched.shard"
NOT_FUNCTIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")

DUE_S = 15 * 60
SCHEDULE = "15 * * * *"
START_S = 30  # so that no periodic sweep or refresh meets the run between arming and settling
WARM_UP_S = 65  # past the first refresh, in which everything is new
WAIT_LIMIT_S = 60


class Function(NamedTuple):
    """A function on the path."""

    module: str
    name: str


class Walk(Struct, frozen=True):
    """A settled run, and the functions that it passed through, in the order of their first call."""

    run: Run
    path: tuple[Function, ...]

    @property
    def modules(self) -> list[str]:
        """The modules, in the order in which the path first enters them."""
        return list(dict.fromkeys(function.module for function in self.path))

    @property
    def shard_modules(self) -> list[str]:
        return [module for module in self.modules if module.startswith(f"{SHARD}.")]

    @property
    def module_changes(self) -> int:
        return sum(before.module != after.module for before, after in pairwise(self.path))


class Tracer:
    """Records the calls of each step of the event loop.

    A step is everything that runs below one outermost function of the package, until that returns
    or waits. Its calls include the functions that it resumes.
    """

    def __init__(self) -> None:
        self._functions: dict[CodeType, Function | None] = {}
        self._depth = 0
        self._step: dict[Function, None] = {}
        self.steps: list[tuple[Function, ...]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._depth = 0
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        function = self._function_of(frame)
        if function is None:
            return
        if event == "call":
            self._depth += 1
            self._step[function] = None
        elif self._depth:
            self._depth -= 1
            if not self._depth:
                self.steps.append(tuple(self._step))
                self._step = {}

    def _function_of(self, frame: FrameType) -> Function | None:
        code = frame.f_code
        if code not in self._functions:
            self._functions[code] = _traced(frame)
        return self._functions[code]


def _traced(frame: FrameType) -> Function | None:
    module = str(frame.f_globals.get("__name__", ""))
    if not _is_within(module, PACKAGE) or _is_within(module, DOUBLES):
        return None
    if frame.f_code.co_name in NOT_FUNCTIONS:
        return None
    return Function(module, frame.f_code.co_qualname)


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


async def walk() -> Walk:
    """Follows one run of a job that was registered long before its time."""
    idle, busy = Tracer(), Tracer()
    horizon_s = ShardConfig().horizon_us // SECOND
    async with World() as world:
        job = await world.register(SCHEDULE)
        await world.advance(START_S)
        world.start()
        await world.advance(WARM_UP_S)
        with idle.recording():
            await world.advance(DUE_S - horizon_s - 1 - world.now_s)
        with busy.recording():
            await world.advance(DUE_S - 1 - world.now_s)
            while not (runs := await world.runs(job)) or runs[0].state is not RunState.SUCCEEDED:
                await world.advance(0.001)
                if world.now_s > DUE_S + WAIT_LIMIT_S:
                    raise RuntimeError(f"not settled {WAIT_LIMIT_S} s after its due time: {runs}")
    known = {frozenset(step) for step in idle.steps}
    path = (function for step in busy.steps if frozenset(step) not in known for function in step)
    return Walk(runs[0], tuple(dict.fromkeys(path)))


def report(walk: Walk) -> Iterator[str]:
    """The path, with consecutive functions of one module together, and its counts."""
    for module, functions in groupby(walk.path, key=lambda function: function.module):
        yield module.removeprefix(f"{PACKAGE}.")
        yield from (f"    {function.name}" for function in functions)
    yield ""
    yield (
        f"{len(walk.path)} functions in {len(walk.modules)} modules, "
        f"{len(walk.shard_modules)} of them in shard/; {walk.module_changes} changes of module; "
        f"the run {walk.run.state}"
    )


def main() -> None:
    quiet = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=quiet)
    for line in report(asyncio.run(walk())):
        print(line)


if __name__ == "__main__":
    main()
