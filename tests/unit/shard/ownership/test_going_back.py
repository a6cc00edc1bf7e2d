"""A database that goes back in time: shards notice, start again, and repeat no token."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.unit.shard.ownership.test_disconnect import BESIDE, assert_tokens_grow, start_two
from tests.unit.shard.world import START_US, World

from wheelsched.core.model import RunState
from wheelsched.core.outcome import Outcome, Succeeded
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.core.token import split_token
from wheelsched.errors import StoreUnavailable
from wheelsched.ports import Adoption, Callback, Lease, Route
from wheelsched.testing.dispatcher import Handler
from wheelsched.testing.tables import TablesSnapshot


def went_back(world: World) -> list[int]:
    return [shard.vitals.ownership.went_back for shard, _ in world.shards.values()]


def assert_every_due_time_arrived(world: World, until_s: int) -> None:
    """At least once: what was forgotten is claimed and sent again, with the same key."""
    assert len(world.keys) == 30 * until_s


def assert_all_owned_once(world: World) -> None:
    gauges = [shard.vitals.ownership.partitions for shard, _ in world.shards.values()]
    assert sum(gauges) == 256
    owners = {row.owner for row in world.store._tables.partitions}
    assert owners == world.store._tables.shards.keys()


@pytest.mark.parametrize("lost_s", [0.4, 1.5, 4.0, 7.0])
async def test_what_was_forgotten_is_claimed_again_under_greater_tokens(
    world: World, lost_s: float
) -> None:
    await start_two(world)
    await world.advance(10)
    snapshot = world.store.snapshot()
    await world.advance(lost_s)
    world.link.is_cut = True
    world.store.go_back(snapshot)
    await world.advance(2)  # until another primary is there
    world.link.is_cut = False
    await world.advance(18 - 2 - lost_s)
    assert_every_due_time_arrived(world, 33)
    assert_tokens_grow(world)
    assert_all_owned_once(world)
    firing = [at_s for at_s in world.times if 15.5 + lost_s + 2 < at_s]
    assert min(firing) < 15.5 + lost_s + 2 + 3


async def test_going_back_is_logged_and_counted(world: World) -> None:
    await start_two(world)
    snapshot = world.store.snapshot()
    await world.advance(5)
    with capture_logs() as logs:
        world.store.go_back(snapshot)
        await world.advance(3)
    events = [entry for entry in logs if entry["event"] == "database.went_back"]
    assert len(events) == 2
    assert all("renewals" in entry["reason"] for entry in events)
    assert went_back(world) == [1, 1]
    rows = world.store._tables.shards.values()
    assert all(row.went_back_at_us is not None for row in rows)
    assert len(rows) == 2


async def test_a_shard_that_had_joined_meanwhile_joins_again(world: World) -> None:
    """Its lease is unknown, and the fence of the others is lower than they know."""
    await start_two(world)
    snapshot = world.store.snapshot()
    world.start("c")
    await world.advance(7)
    world.store.go_back(snapshot)
    await world.advance(5)
    assert_all_owned_once(world)
    assert len(world.store._tables.shards) == 3
    assert went_back(world)[:2] == [1, 1]
    assert_tokens_grow(world)
    assert_every_due_time_arrived(world, 17)


async def test_a_takeover_that_was_forgotten_does_not_bring_the_old_tokens_back(
    world: World,
) -> None:
    """The shard that was cut off finds its lease as it left it, and others have sent its runs."""
    await start_two(world)
    world.links["a"].cut()
    snapshot = world.store.snapshot()
    await world.advance(3)
    later = {split_token(callback.token).epoch for _, callback in world.arrived}
    world.links["a"].is_cut = False
    world.store.go_back(snapshot)
    await world.advance(6)
    assert_tokens_grow(world)
    assert_every_due_time_arrived(world, 14)
    assert min(split_token(callback.token).epoch for _, callback in world.arrived[-30:]) > max(
        later
    )
    assert_all_owned_once(world)


async def test_an_acquisition_that_had_no_answer_does_not_bring_its_epoch_back(
    world: World,
) -> None:
    """The shard is cut off with it, is replaced, and finds its partitions when that is forgotten:
    with an epoch that is lower than those of the runs that others have sent meanwhile."""
    snapshots: list[TablesSnapshot] = []
    await world.register_many(["* * * * * *"] * 30, overlap=BESIDE)
    world.start("b")
    await world.advance(5)
    world.start("a")
    leases = world.links["a"].leases
    acquire = leases.acquire

    async def acquire_unanswered(*arguments: object) -> None:
        await acquire(*arguments)
        leases.acquire = acquire
        snapshots.append(world.store.snapshot())
        world.links["a"].cut()
        raise StoreUnavailable

    leases.acquire = acquire_unanswered
    await world.advance(3.5)
    assert snapshots
    world.links["a"].is_cut = False
    world.store.go_back(snapshots[0])
    await world.advance(6)
    assert_tokens_grow(world)
    assert_every_due_time_arrived(world, 14)
    assert_all_owned_once(world)


async def test_outcomes_that_were_forgotten_are_found_within_seconds(world: World) -> None:
    job = await world.register("+2")
    world.start("a")
    await world.advance(1.9)
    snapshot = world.store.snapshot()
    await world.advance(0.5)
    assert world.times == [2.0]
    world.store.go_back(snapshot)
    await world.advance(3)
    assert world.keys.most_common()[0][1] == 2
    assert [shard.vitals.runs.repeated for shard, _ in world.shards.values()] == [1]
    assert [str(state) for state in await world.states(job)] == ["succeeded"]
    assert_tokens_grow_for_one(world)


def assert_tokens_grow_for_one(world: World) -> None:
    tokens = [callback.token for _, callback in world.arrived]
    assert tokens == sorted(set(tokens))


async def test_a_carried_run_that_is_not_sent_is_left_to_the_next_owner(world: World) -> None:
    """The database may have forgotten that another has adopted it: it gets a greater token."""
    await world.register_many(["*/10 * * * * *"] * 20)
    world.start("a")
    await world.advance(8.9)
    before = {row.epoch for row in world.store._tables.partitions}
    world.start("b")
    await world.advance(1.05)  # the runs of 10 s are carried
    world.store.server.restart()
    await world.advance(6)
    assert set(world.keys.values()) == {1}
    assert len(world.keys) == 20
    sent = {split_token(callback.token).epoch for _, callback in world.arrived}
    assert min(sent) > max(before)


def answer_after(world: World, seconds: int) -> Handler:
    async def answer_late(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        await world.clock.sleep(seconds * 1_000_000_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    return answer_late


async def test_runs_that_are_with_their_worker_go_on_after_a_restart(world: World) -> None:
    world.handler = answer_after(world, seconds=3)
    jobs = await world.register_many(["*/10 * * * * *"] * 20)
    world.start("a")
    await world.advance(10.2)
    world.start("b")
    await world.advance(1.8)  # some are carried
    world.store.server.restart()
    await world.advance(5)
    assert set(world.keys.values()) == {1}
    for job in jobs:
        states = {run.due_us: run.state for run in await world.runs(job)}
        assert states[START_US + 10_000_000] is RunState.SUCCEEDED


async def test_a_partition_with_forgotten_runs_is_not_handed_over(world: World) -> None:
    """The next owner would wait for a carrier that lives, and does not know the run."""
    jobs = await world.register_many(["*/10 * * * * *"] * 60)
    world.start("a")
    await world.advance(10.2)
    for row in world.store._tables.runs.values():  # the database forgets that they have ended
        row.run = replace(row.run, state=RunState.RUNNING, finished_at_us=None, http_status=None)
        row.had_retry = True
    world.start("b")
    world.store.server.restart()
    await world.advance(8)
    assert_all_owned_once(world)
    for job in jobs:
        first, *_ = await world.runs(job)
        assert first.state is RunState.SUCCEEDED


@pytest.mark.parametrize("policy", [OnOverlap.QUEUE, OnOverlap.CANCEL])
async def test_an_adopted_run_that_is_not_sent_is_left_to_the_next_owner(
    world: World, policy: OnOverlap
) -> None:
    """Its carrier is dead. Who adopts it starts over before it has sent it, and hands it over."""
    world.handler = answer_after(world, seconds=3)
    overlap = OverlapPolicy(policy=policy)
    jobs = await world.register_many(["*/10 * * * * *"] * 20, overlap=overlap)
    world.start("a")
    await world.advance(10.2)
    world.start("b")
    await world.advance(1.5)  # some are carried
    runs, rows = world.links["b"].runs, world.store._tables.runs
    adopt = runs.adopt

    async def adopt_and_restart(lease: Lease, adoptions: Sequence[Adoption]) -> object:
        are_carried = [rows[one.key].run.state is RunState.RUNNING for one in adoptions]
        lost = await adopt(lease, adoptions)
        if any(are_carried):
            runs.adopt = adopt
            world.start("c")
            await world.clock.run_ready()
            world.store.server.restart()
        return lost

    runs.adopt = adopt_and_restart
    await world.crash("a")
    await world.advance(13)
    assert runs.adopt is adopt
    for job in jobs:
        states = {run.due_us: run.state for run in await world.runs(job)}
        assert states[START_US + 10_000_000] is RunState.SUCCEEDED
        assert states[START_US + 20_000_000] is RunState.SUCCEEDED
