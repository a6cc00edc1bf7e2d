"""A harness that cannot fail proves nothing: what the judge says when something is wrong."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.checker.records import Arrival, Fault, FaultKind, History, Request, RunRow
from tests.faults.deaths import SPREAD, shard_killed
from tests.faults.experiment import Load, Scenario, observe, run_experiment
from tests.faults.freezes import frozen
from tests.faults.judge import Observation, judge, unavailable
from tests.faults.processes import Shard
from tests.faults.server import Server
from tests.faults.table import write_table
from tests.faults.trespasser import QUESTIONS, Trespasser
from tests.faults.variants import LyingShard, UnwatchedShard
from tests.faults.world import World

pytestmark = pytest.mark.proof  # judges an experiment with real processes

SECOND_US = 1_000_000
ARMED_ARRIVALS = 300  # of 36 jobs of each second: longer than a pause finds runs that are armed

STALLS = 3  # experiments: after so many of them a stall is taken as it is


async def nothing(world: World) -> None:
    await world.until_arrived(160)


QUIET = Scenario(name="nothing", strike=nothing, load=Load(one_offs=20, over_s=4))


@pytest.fixture(scope="module")
def seen(server: Server) -> Observation:
    """A real experiment, in which nothing was broken; once more if the machine has stalled."""
    for seed in range(STALLS):
        quiet = asyncio.run(observe(QUIET, server, seed))
        if not quiet.history.faults:
            break
    return quiet


def test_nothing_is_found_where_nothing_was_broken(seen: Observation) -> None:
    verdict = judge("nothing", seen)
    assert verdict.broken == ()
    assert not verdict.explained or seen.history.faults  # the machine may have stalled
    assert verdict.runs >= 60


def test_both_tenants_have_something_to_lose(seen: Observation) -> None:
    """Each has runs that are signed with its own secret, and what it has was asked for in vain."""
    history = seen.history
    tenants = {request.tenant for request in history.requests}
    assert len(tenants) == 2
    assert {(one.tenant, one.signer) for one in history.arrivals} == {(t, t) for t in tenants}
    owners = {job.job: job.tenant for job in history.jobs}
    assert "nothing" in {one.shown for one in history.trespasses}
    assert all(owners[one.job] != one.tenant for one in history.trespasses)


def policies(history: History) -> dict[str, str]:
    """What each job says about overlaps."""
    asked = history.requests
    return {one.job: one.definition.overlap for one in asked if one.definition is not None}


def waiting(history: History) -> Arrival:
    """An arrival that had waited until another run of its job had ended."""
    policy = policies(history)
    return next(
        later
        for earlier, later in permutations(history.arrivals, 2)
        if earlier.job == later.job
        and policy[later.job] == "queue"
        and earlier.answer == later.answer == "ok"
        and earlier.at_us < later.due_us < (earlier.answered_us or 0) - SECOND_US // 4
    )


def ended(history: History) -> tuple[Arrival, Arrival]:
    """An arrival that failed, and that of a later run of its job by which it was cancelled."""
    policy = policies(history)
    return next(
        (first, later)
        for first, later in permutations(history.arrivals, 2)
        if first.job == later.job
        and policy[first.job] == "cancel"
        and first.answer == "failed"
        and first.at_us < later.due_us < later.at_us
    )


def test_runs_meet_others_of_their_job(seen: Observation) -> None:
    """One is skipped, one waits until its worker is free, and one ends the other."""
    policy = policies(seen.history)
    ends = {(policy[run.job], run.state, run.skip_reason) for run in seen.history.runs}
    assert ("skip", "skipped", "overlap") in ends
    assert ("cancel", "cancelled", None) in ends
    assert waiting(seen.history) != ended(seen.history)[0]


def plain(history: History) -> Arrival:
    """An arrival of a job that was registered and never touched again, and that meets nobody.

    It was due well after its client knew of the job: what is due sooner need not be.
    """
    asked = Counter(request.job for request in history.requests)
    known_us = {one.job: one.answered_us for one in history.requests if one.result == "ok"}
    return next(
        arrival
        for arrival in history.arrivals
        if asked[arrival.job] == 1
        and arrival.job in known_us
        and known_us[arrival.job] + SECOND_US < arrival.due_us < history.healed_us
        and arrival.url.endswith("/ok")
    )


def with_another_arrival(history: History, *instead: Arrival) -> History:
    others = tuple(arrival for arrival in history.arrivals if arrival != plain(history))
    return replace(history, arrivals=(*others, *instead))


def with_another_run(history: History, *instead: RunRow) -> History:
    others = tuple(run for run in history.runs if run != plain_run(history))
    return replace(history, runs=(*others, *instead))


def plain_run(history: History) -> RunRow:
    """The row of that arrival."""
    key = (plain(history).job, plain(history).due_us)
    return next(run for run in history.runs if (run.job, run.due_us) == key)


def without_an_arrival(history: History) -> History:
    return with_another_arrival(history)


def without_a_run(history: History) -> History:
    return with_another_run(history)


def with_an_early_one(history: History) -> History:
    arrival = plain(history)
    return with_another_arrival(history, replace(arrival, at_us=arrival.due_us - SECOND_US))


def with_one_twice(history: History) -> History:
    first = plain(history)
    again = replace(first, at_us=first.at_us + 1, token=first.token + (1 << 32))
    return replace(with_another_arrival(history, first, again), faults=())


def with_one_beside_another(history: History) -> History:
    """It has not waited."""
    waited = waiting(history)
    others = (arrival for arrival in history.arrivals if arrival != waited)
    return replace(history, arrivals=(*others, replace(waited, at_us=waited.due_us)))


def with_one_that_outlived_another(history: History) -> History:
    """It is tried again after that by which it was cancelled."""
    first, later = ended(history)
    at_us = later.at_us + 2 * SECOND_US
    again = replace(first, attempt=2, token=first.token + 50, at_us=at_us, answered_us=at_us)
    return replace(history, arrivals=(*history.arrivals, again))


def with_one_armed_twice(history: History) -> History:
    return replace(history, runs=(*history.runs, plain_run(history)))


def with_an_outcome_of_another(history: History) -> History:
    run = plain_run(history)
    return with_another_run(history, replace(run, token=(run.token or 0) + 7))


def with_one_unfinished(history: History) -> History:
    registry = replace(plain_run(history), state="armed", finished_at_us=None)
    return with_another_run(history, registry)


def with_two_owners(history: History) -> History:
    return replace(
        history, ownerships=(*history.ownerships, replace(history.ownerships[0], shard="b"))
    )


def another_tenant(history: History) -> str:
    """One whose job the plain one is not."""
    own = plain(history).tenant
    return next(request.tenant for request in history.requests if request.tenant != own)


def with_one_signed_by_another(history: History) -> History:
    return with_another_arrival(history, replace(plain(history), signer=another_tenant(history)))


def with_one_signed_by_nobody(history: History) -> History:
    return with_another_arrival(history, replace(plain(history), signer="nobody"))


def with_one_in_the_name_of_another(history: History) -> History:
    return with_another_arrival(history, replace(plain(history), tenant=another_tenant(history)))


def with_a_trespass_that_was_answered(history: History) -> History:
    first, *others = history.trespasses
    return replace(history, trespasses=(replace(first, shown="something"), *others))


@pytest.mark.parametrize(
    ("tamper", "finding"),
    [
        (without_an_arrival, "phantom"),
        (without_a_run, "lost"),
        (with_an_early_one, "early"),
        (with_one_twice, "duplicated"),
        (with_one_beside_another, "overlapping"),
        (with_one_that_outlived_another, "outlived"),
        (with_one_armed_twice, "armed_twice"),
        (with_an_outcome_of_another, "stale_write"),
        (with_one_unfinished, "stuck"),
        (with_two_owners, "two_owners"),
        (with_one_signed_by_another, "cross_tenant"),
        (with_one_signed_by_nobody, "cross_tenant"),
        (with_one_in_the_name_of_another, "cross_tenant"),
        (with_a_trespass_that_was_answered, "cross_tenant"),
    ],
)
def test_what_was_tampered_with_is_found(
    seen: Observation, tamper: Callable[[History], History], finding: str
) -> None:
    verdict = judge("tampered", replace(seen, history=tamper(seen.history)))
    assert verdict.word == "BROKEN"
    assert verdict.found[finding]
    assert "| BROKEN |" in write_table([verdict])


def paused_just_after(history: History, *instead: RunRow) -> History:
    """The job of the plain run was paused 20 ms after it was due, and nothing of it was armed."""
    run = plain_run(history)
    sent_us = run.due_us + 20_000
    pause = Request(
        verb="pause",
        job=run.job,
        tenant=run.tenant,
        sent_us=sent_us,
        answered_us=sent_us + 1,
        result="ok",
    )
    return replace(
        history,
        requests=(*history.requests, pause),
        arrivals=tuple(one for one in history.arrivals if one.job != run.job),
        runs=(*(one for one in history.runs if one.job != run.job), *instead),
        faults=(),
    )


def test_what_a_pause_drops_without_a_row_is_lost(seen: Observation) -> None:
    run = plain_run(seen.history)
    verdict = judge("dropped", replace(seen, history=paused_just_after(seen.history)))
    assert verdict.word == "BROKEN"
    assert f"lost {run.job} {run.due_us}" in " ".join(verdict.broken)


def test_what_a_pause_skips_with_a_row_is_not_lost(seen: Observation) -> None:
    run = plain_run(seen.history)
    earliest_us = min(one.due_us for one in seen.history.runs if one.job == run.job)
    count = sum(
        one.job == run.job and earliest_us <= one.due_us <= run.due_us for one in seen.history.runs
    )
    skipped = replace(
        run,
        state="skipped",
        skip_reason="paused",
        missed_count=count,
        missed_since_us=earliest_us,
        finished_at_us=run.due_us + 20_001,
        token=None,
        armed_at_us=None,
    )
    verdict = judge("skipped", replace(seen, history=paused_just_after(seen.history, skipped)))
    assert run.job not in " ".join(verdict.broken)


def test_what_a_scenario_has_seen_counts(seen: Observation) -> None:
    verdict = judge("seen", replace(seen, broken=("it ended with 1 after SIGTERM",)))
    assert verdict.word == "BROKEN"


def taken_over_after(history: History, delay_us: int, kind: FaultKind) -> History:
    """As if a shard had ended so long before the next one fired its jobs, all of them at once."""
    fired_us = min(arrival.at_us for arrival in history.arrivals)
    died_us = fired_us - delay_us
    dead = tuple(
        replace(
            ownership, epoch=0, shard="dead", from_us=0, until_us=died_us + 1, ended="taken_over"
        )
        for ownership in history.ownerships
    )
    died = Fault(kind=kind, from_us=died_us, until_us=died_us, shard="dead")
    return replace(
        history,
        arrivals=tuple(
            replace(arrival, due_us=died_us, at_us=fired_us) for arrival in history.arrivals
        ),
        ownerships=(*dead, *history.ownerships),
        faults=(died,),
    )


KNOWN = "takeover after a known death over 1.5 s"
ANY = "takeover over 15 s"


@pytest.mark.parametrize(
    ("kind", "delay_s", "said"),
    [("crash", 2, {KNOWN}), ("crash", 16, {KNOWN, ANY}), ("freeze", 16, {ANY})],
)
def test_a_late_takeover_is_noticed(
    seen: Observation, kind: FaultKind, delay_s: int, said: set[str]
) -> None:
    """By what was broken: the death of a process is known at once."""
    history = taken_over_after(seen.history, delay_s * SECOND_US, kind)
    slow = judge("late", replace(seen, history=history)).slow
    assert {KNOWN, ANY} & set(slow) == said


LATE_CROWD = "not everything out 4 s after the second"
LATE_IN_CROWD = "takeover after a known death over 4 s, in a crowd"


@pytest.mark.parametrize(
    ("delay_s", "crowd_us", "said"),
    [
        (3, 4 * SECOND_US, set()),
        (3, 4 * SECOND_US + 1, {LATE_CROWD}),
        (5, 4 * SECOND_US, {LATE_IN_CROWD}),
        (16, 5 * SECOND_US, {LATE_CROWD, LATE_IN_CROWD, ANY}),
    ],
)
def test_a_crowd_has_a_bound_of_its_own(
    seen: Observation, delay_s: int, crowd_us: int, said: set[str]
) -> None:
    history = taken_over_after(seen.history, delay_s * SECOND_US, "crash")
    verdict = judge("crowd", replace(seen, history=history, crowd_us=crowd_us))
    assert {KNOWN, LATE_CROWD, LATE_IN_CROWD, ANY} & set(verdict.slow) == said


def test_a_takeover_of_the_living_is_noticed(seen: Observation) -> None:
    robbed = replace(seen.history.ownerships[0], until_us=seen.history.ended_us, ended="taken_over")
    ownerships = (robbed, *seen.history.ownerships[1:])
    history = replace(seen.history, ownerships=ownerships, faults=())
    broken = judge("robbed", replace(seen, history=history)).broken
    assert f"taken over while it lived: {robbed.shard}" in broken


@pytest.mark.parametrize(("ago_s", "is_broken"), [(2, False), (9, True)])
def test_a_takeover_after_a_cut_is_slow(seen: Observation, ago_s: int, is_broken: bool) -> None:
    """A machine that is busy may need longer than half a second for a new connection."""
    ended_us = seen.history.ended_us
    robbed = replace(seen.history.ownerships[0], until_us=ended_us, ended="taken_over")
    cut_us = ended_us - ago_s * SECOND_US
    cut = Fault(kind="store", from_us=cut_us, until_us=cut_us, shard=robbed.shard)
    ownerships = (robbed, *seen.history.ownerships[1:])
    history = replace(seen.history, ownerships=ownerships, faults=(cut,))
    verdict = judge("cut", replace(seen, history=history))
    assert (f"taken over while it lived: {robbed.shard}" in verdict.broken) is is_broken
    assert (f"taken over after a cut: {robbed.shard}" in verdict.slow) is not is_broken


def test_a_slow_return_is_noticed(seen: Observation) -> None:
    """As if Postgres had been back four seconds before the first callback."""
    back_us = min(arrival.at_us for arrival in seen.history.arrivals) - 4 * SECOND_US
    assert judge("late", replace(seen, returns_us=(back_us,))).slow


def test_a_return_after_which_nothing_fires_is_noticed(seen: Observation) -> None:
    back_us = max(arrival.at_us for arrival in seen.history.arrivals)
    verdict = judge("silent", replace(seen, returns_us=(back_us,)))
    assert verdict.broken == ("nothing was fired any more when Postgres was back",)


def test_where_nothing_was_broken_no_stall_explains_a_duplicate(seen: Observation) -> None:
    twice = with_one_twice(seen.history)
    stalled = Fault(kind="freeze", from_us=twice.started_us, until_us=twice.ended_us)
    history = replace(twice, faults=(stalled,))
    assert judge("stalled", replace(seen, history=history)).explained["freeze"]
    verdict = judge("stalled", replace(seen, history=history, is_faultless=True))
    assert "duplicated with no fault: {'freeze': 1}" in verdict.broken


def test_an_unavailable_fault_is_reported() -> None:
    table = write_table([unavailable("disk full", "mount is not allowed")])
    assert "not available here | mount is not allowed" in table


async def ask_for_its_own(world: World) -> None:
    """As if the API took one tenant for the other: each question is one that an owner may ask."""
    own = world.clients.each[0]
    trespasser = Trespasser(world.clients.each, world.random, world._database_us)
    for question in QUESTIONS:
        await trespasser.ask(question, own, own)
    world.require(
        {one.shown for one in own.trespasses} == {"something"},
        f"not shown: {[one for one in own.trespasses if one.shown != 'something']}",
    )
    await world.until_arrived(ARMED_ARRIVALS)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_who_gets_what_is_another_tenants_is_caught(server: Server) -> None:
    load = Load(one_offs=0, is_changing=False)
    scenario = Scenario(name="trespass", strike=ask_for_its_own, load=load)
    verdict = await run_experiment(scenario, server)
    assert verdict.found["cross_tenant"] == len(QUESTIONS)
    assert "not shown" not in " ".join(verdict.broken)
    done = {"edit": "old_self", "pause": "lost", "trigger": "requested_twice", "delete": "vanished"}
    assert {name for name in done.values() if verdict.found[name]} == set(done.values())


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


def unwatched(world: World) -> None:
    world.shard_type = UnwatchedShard


def lied_about(world: World) -> None:
    world.shard_types["shard-1"] = LyingShard


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_an_unreported_death_is_slow(server: Server) -> None:
    scenario = Scenario(name="untold", strike=shard_killed, prepare=unwatched, load=SPREAD)
    verdict = await run_experiment(scenario, server)
    assert verdict.broken == ()
    assert KNOWN in verdict.slow


async def lied(world: World) -> None:
    await world.shards["shard-1"].until_logged("shard.joined", 2)
    await world.until_arrived(100)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_parent_that_certifies_the_living_is_caught(server: Server) -> None:
    load = Load(spread=20, over_s=30)
    scenario = Scenario(name="a lie", strike=lied, prepare=lied_about, load=load)
    verdict = await run_experiment(scenario, server)
    assert any("taken over while it lived" in text for text in verdict.broken)
