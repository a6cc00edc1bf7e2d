"""A harness that cannot fail proves nothing: what the judge says when something is wrong."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.checker.records import Fault, History
from tests.faults.experiment import Load, Scenario, observe, run_experiment
from tests.faults.freezes import frozen
from tests.faults.judge import Observation, judge, unavailable
from tests.faults.processes import Shard
from tests.faults.server import Server
from tests.faults.table import write_table
from tests.faults.world import World

SECOND_US = 1_000_000


async def nothing(world: World) -> None:
    await world.until_arrived(60)


QUIET = Scenario(name="nothing", strike=nothing, load=Load(one_offs=20, over_s=4))


@pytest.fixture(scope="module")
def seen(server: Server) -> Observation:
    """A real experiment, in which nothing was broken."""
    return asyncio.run(observe(QUIET, server))


def test_nothing_is_found_where_nothing_was_broken(seen: Observation) -> None:
    verdict = judge("nothing", seen)
    assert verdict.broken == ()
    assert not verdict.explained
    assert verdict.runs >= 60


def without_an_arrival(history: History) -> History:
    return replace(history, arrivals=history.arrivals[:20] + history.arrivals[21:])


def without_a_run(history: History) -> History:
    first = history.arrivals[20]
    kept = (run for run in history.runs if (run.job, run.due_us) != (first.job, first.due_us))
    return replace(history, runs=tuple(kept))


def with_an_early_one(history: History) -> History:
    early = replace(history.arrivals[20], at_us=history.arrivals[20].due_us - SECOND_US)
    return replace(history, arrivals=(*history.arrivals[:20], early, *history.arrivals[21:]))


def with_one_twice(history: History) -> History:
    first = history.arrivals[20]
    again = replace(first, at_us=first.at_us + 1, token=first.token + (1 << 32))
    return replace(history, arrivals=(*history.arrivals, again))


def with_one_armed_twice(history: History) -> History:
    return replace(history, runs=(*history.runs, history.runs[20]))


def with_an_outcome_of_another(history: History) -> History:
    (place, run) = next(
        (place, run)
        for place, run in enumerate(history.runs)
        if run.state == "succeeded" and run.token is not None
    )
    wrong = replace(run, token=(run.token or 0) + 7)
    return replace(history, runs=(*history.runs[:place], wrong, *history.runs[place + 1 :]))


def with_one_unfinished(history: History) -> History:
    (place, run) = next((n, r) for n, r in enumerate(history.runs) if r.state == "succeeded")
    wrong = replace(run, state="armed", finished_at_us=None)
    return replace(history, runs=(*history.runs[:place], wrong, *history.runs[place + 1 :]))


def with_two_owners(history: History) -> History:
    return replace(history, tenures=(*history.tenures, replace(history.tenures[0], shard="b")))


@pytest.mark.parametrize(
    ("tamper", "finding"),
    [
        (without_an_arrival, "phantom"),
        (without_a_run, "lost"),
        (with_an_early_one, "early"),
        (with_one_twice, "duplicated"),
        (with_one_armed_twice, "armed_twice"),
        (with_an_outcome_of_another, "stale_write"),
        (with_one_unfinished, "stuck"),
        (with_two_owners, "two_owners"),
    ],
)
def test_what_was_tampered_with_is_found(
    seen: Observation, tamper: Callable[[History], History], finding: str
) -> None:
    verdict = judge("tampered", replace(seen, history=tamper(seen.history)))
    assert verdict.word == "BROKEN"
    assert verdict.found[finding]
    assert "| BROKEN |" in write_table([verdict])


def test_what_a_scenario_has_seen_counts(seen: Observation) -> None:
    verdict = judge("seen", replace(seen, broken=("it ended with 1 after SIGTERM",)))
    assert verdict.word == "BROKEN"


def test_a_late_takeover_is_slow(seen: Observation) -> None:
    """A shard died sixteen seconds before the next one fired any of its jobs."""
    history = seen.history
    first = min(tenure.from_us for tenure in history.tenures) - 16 * SECOND_US
    dead = tuple(
        replace(tenure, epoch=0, shard="dead", from_us=first - 1, until_us=first + 1)
        for tenure in history.tenures
    )
    died = Fault(kind="crash", from_us=first, until_us=first, shard="dead")
    ended = tuple(replace(tenure, ended="taken_over") for tenure in dead)
    history = replace(history, tenures=(*ended, *history.tenures), faults=(died,))
    verdict = judge("late", replace(seen, history=history))
    assert verdict.word == "slow"
    assert "takeover over 15 s" in verdict.slow


def test_what_cannot_be_done_here_is_said() -> None:
    table = write_table([unavailable("disk full", "mount is not allowed")])
    assert "not available here | mount is not allowed" in table


class MutantShard(Shard):
    command = (sys.executable, str(Path(__file__).with_name("mutant_shard.py")), "shard")


def with_mutants(world: World) -> None:
    world.shard_type = MutantShard


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_shard_that_trusts_its_lease_forever_is_caught(server: Server) -> None:
    scenario = Scenario(name="mutant", strike=frozen(12), prepare=with_mutants)
    verdict = await run_experiment(scenario, server)
    assert verdict.found["sent_after_takeover"]
