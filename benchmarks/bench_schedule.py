"""What a step of a schedule costs, beside croniter's `get_next`, both in one run.

    make bench ONLY=schedule

A *step* goes along a schedule in a time zone, each due time asked for with the one before; both
sides have parsed before. In a *hot second* many jobs share an expression and ask for the same
step: first remembered alone, against a step of croniter's; then as arming does it, from each
job's stored spec, against parsing and a step.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from time import perf_counter
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from report import Record, Target
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.schedule.spec import Spec

OURS = "wheelsched"
Side = Callable[[str], Callable[[], None]]

ZONE = "America/New_York"
NOW = datetime(2026, 11, 16, tzinfo=ZoneInfo(ZONE))
NOW_US = int(NOW.timestamp()) * 1_000_000
CENTURY_US = 100 * 365 * 86_400 * 1_000_000
EXPRESSIONS = ["0 9 * * 1-5", "30 2 * * *", "*/5 * * * *", "0 0 1 * *", "* * * * * *"]
JOBS = [UUID(int=number) for number in range(1_000)]


def our_step(expression: str) -> Callable[[], None]:
    schedule = compile_schedule(spec_of(expression), JOBS[0], NOW_US)
    due_us = NOW_US

    def step() -> None:
        nonlocal due_us
        next_us = schedule.next_after(due_us)
        assert next_us is not None
        # Around a century and back, so that no step is remembered from the last time.
        due_us = NOW_US if next_us > NOW_US + CENTURY_US else next_us

    return step


def their_step(expression: str) -> Callable[[], None]:
    iterator = croniter(expression, NOW, second_at_beginning=True)

    def step() -> None:
        iterator.get_next(datetime)

    return step


def their_parse_and_step(expression: str) -> Callable[[], None]:
    def parse_and_step() -> None:
        croniter(expression, NOW, second_at_beginning=True).get_next(datetime)

    return parse_and_step


def our_hot_second(expression: str) -> Callable[[], None]:
    spec = spec_of(expression)
    due_us = compile_schedule(spec, JOBS[0], NOW_US).next_after(NOW_US)
    assert due_us is not None

    def hot_second() -> None:
        for job_id in JOBS:
            compile_schedule(spec, job_id, NOW_US).next_after(due_us)

    return hot_second


def our_remembered_step(expression: str) -> Callable[[], None]:
    schedule = compile_schedule(spec_of(expression), JOBS[0], NOW_US)
    next_after = schedule.next_after

    def remembered() -> None:
        next_after(NOW_US)

    return remembered


def spec_of(expression: str) -> Spec:
    return parse(expression, timezone=ZONE, now_us=NOW_US)


def microseconds(sides: Sequence[tuple[Side, int]], expression: str) -> list[float]:
    """What each side costs, given how often it repeats in a round.

    The rounds are short and the sides take turns, so that a busy machine disturbs neither more;
    each counts by its least disturbed round.
    """
    actions = [(side(expression), repeats) for side, repeats in sides]
    best = [float("inf")] * len(actions)
    for _ in range(40):
        for index, (action, repeats) in enumerate(actions):
            started = perf_counter()
            for _ in range(repeats):
                action()
            best[index] = min(best[index], (perf_counter() - started) / repeats * 1e6)
    return best


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_against_croniter(benchmark: Any, record: Record, expression: str) -> None:
    sides: list[tuple[Side, int]] = [
        (their_step, 50),
        (our_step, 1_000),
        (our_remembered_step, 10_000),
        (their_parse_and_step, 15),
        (our_hot_second, 1),
    ]
    theirs, step, remembered, parsed, hot_second = microseconds(sides, expression)
    figures = {
        "step": (step, theirs, 15),
        "hot second, remembered step": (remembered, theirs, 100),
        "hot second, spec to step": (hot_second / len(JOBS), parsed, 100),
    }
    for name, (ours, croniters, bound) in figures.items():
        workload = f"{name}: {expression}"
        record.add(workload, OURS, 1, ours * 1_000)
        record.add(workload, "croniter", 1, croniters * 1_000)
        record.targets.append(Target(workload, workload, 1, "croniter", bound))
    benchmark(our_step(expression))
