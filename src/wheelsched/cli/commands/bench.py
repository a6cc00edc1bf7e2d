"""`bench`: lateness of runs on this machine, and the cost of the timing wheel.

Invariant: values that are compared are measured in one run on the same input.
"""

import heapq
from array import array
from collections.abc import Callable
from random import Random
from typing import Annotated, Final

import typer
from msgspec import Struct

from wheelsched import Wheel
from wheelsched.cli.commands.demo import present
from wheelsched.cli.demonstration.scenario import Scenario
from wheelsched.cli.output import Output, rows
from wheelsched.cli.shared import JsonOption, group, with_output
from wheelsched.clock import SystemClock

SECOND_NS: Final = 1_000_000_000
STEP_NS: Final = 1_000_000

app = group("Run benchmarks on this machine.")


@app.command("hot-second")
def hot_second(
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs due at one instant.")] = 50_000,
    batch: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum runs per request.")] = 100,
    shards: Annotated[int, typer.Option(min=1, max=64, help="Number of shards.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Measure lateness with many jobs due at one instant."""
    scenario = Scenario(
        one_offs=jobs,
        single=0,
        batch=batch,
        recurring=1,
        shards=shards,
        is_killing=False,
        steady_s=2,
    )
    present(scenario, as_json=as_json)


@app.command("steady")
def steady(
    rate: Annotated[int, typer.Option(min=1, help="Runs due per second.")] = 1_000,
    seconds: Annotated[int, typer.Option(min=1, help="Duration in seconds.")] = 30,
    batch: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum runs per request.")] = 1,
    shards: Annotated[int, typer.Option(min=1, max=64, help="Number of shards.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Measure lateness at a steady rate."""
    scenario = Scenario(
        one_offs=1,
        single=1,
        batch=batch,
        recurring=rate,
        shards=shards,
        is_killing=False,
        steady_s=seconds,
    )
    present(scenario, as_json=as_json)


class Cost(Struct, frozen=True, kw_only=True):
    """The cost of one timer in nanoseconds."""

    what: str
    wheel_ns: float
    heap_ns: float


@app.command("wheel")
@with_output
def wheel(
    timers: Annotated[int, typer.Option(min=1, help="Number of timers.")] = 500_000,
) -> Output:
    """Compare the timing wheel with heapq."""
    source = Random(1)  # noqa: S311 - reproducible
    deadlines = array("q", (source.randrange(SECOND_NS) for _ in range(timers)))
    keys = array("q", range(timers))
    held = Wheel()
    heap: list[tuple[int, int]] = []

    def push_all() -> None:
        for pair in zip(deadlines, keys, strict=True):
            heapq.heappush(heap, pair)

    def pop_until(now_ns: int) -> None:
        while heap and heap[0][0] <= now_ns:
            heapq.heappop(heap)

    costs = [
        Cost(
            what="insert",
            wheel_ns=_took_ns(lambda: held.add_many(deadlines, keys)) / timers,
            heap_ns=_took_ns(push_all) / timers,
        ),
        Cost(
            what="fire in steps of 1 ms",
            wheel_ns=_took_ns(lambda: _step(held.advance)) / timers,
            heap_ns=_took_ns(lambda: _step(pop_until)) / timers,
        ),
    ]
    return rows(
        costs,
        {
            "": lambda cost: cost.what,
            "wheel ns": lambda cost: cost.wheel_ns,
            "heapq ns": lambda cost: cost.heap_ns,
            "times": lambda cost: cost.heap_ns / cost.wheel_ns,
        },
    )


def _step(advance: Callable[[int], object]) -> None:
    for now_ns in range(STEP_NS, SECOND_NS + 3 * STEP_NS, STEP_NS):
        advance(now_ns)


def _took_ns(work: Callable[[], object]) -> int:
    began_ns = SystemClock.now_ns()
    work()
    return SystemClock.now_ns() - began_ns
