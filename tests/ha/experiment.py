"""One failover from its start to its verdict, on a cluster of its own."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct
from tests.checker.records import Arrival, History
from tests.faults.experiment import register
from tests.faults.judge import EVERY_SECOND, Observation, Verdict, judge
from tests.faults.processes import Shard
from tests.faults.world import new_world
from tests.ha.cluster import running_cluster
from tests.ha.failovers import LOAD, Failover
from tests.ha.world import ClusterServer, HaWorld


class Result(Struct, frozen=True):
    """A verdict, and when each job that is due every second had fired again."""

    failover: Failover
    verdict: Verdict
    all_again_us: int | None = None


async def run_failover(
    failover: Failover, evidence: Path | None = None, shard_type: type[Shard] = Shard
) -> Result:
    """One scenario; if its verdict is *broken*, its logs go to a file."""
    seen = await observe(failover, shard_type)
    verdict = judge(failover.name, seen)
    if verdict.broken and evidence is not None:
        evidence.write_bytes(msgspec.json.encode(seen.history))  # noqa: ASYNC240 - nobody waits
    return Result(failover, verdict, measure_all_again(seen))


async def observe(failover: Failover, shard_type: type[Shard] = Shard) -> Observation:
    """What happens in a scenario, without an opinion."""
    async with asyncio.timeout(failover.limit_s), AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(failover.replication))
        server = ClusterServer(cluster, await cluster.the_primary())
        world = cast("HaWorld", await stack.enter_async_context(new_world(server, 0, HaWorld)))
        world.shard_type = shard_type
        await world.open(failover.shards)
        await register(LOAD, world)
        await failover.strike(world)
        healed_us = await world.heal()
        await world.quiesce(healed_us)
        return await world.dump(healed_us)


def measure_all_again(seen: Observation) -> int | None:
    """From the last return of the database until each untouched job has fired again."""
    if not seen.returns_us:
        return None
    back_us = seen.returns_us[-1]
    fired = {arrival.job: arrival.at_us for arrival in _reversed(seen.history, back_us)}
    waited = [fired.get(job, seen.history.ended_us) for job in _busy(seen.history, back_us)]
    return max(waited, default=back_us) - back_us


def _reversed(history: History, since_us: int) -> list[Arrival]:
    """What arrived since then, the first last."""
    after = [arrival for arrival in history.arrivals if arrival.at_us > since_us]
    return sorted(after, key=lambda arrival: -arrival.at_us)


def _busy(history: History, at_us: int) -> set[str]:
    """The jobs that are due every second, were there by then, and were only created."""
    created = {
        request.job
        for request in history.requests
        if request.verb == "create"
        and request.answered_us < at_us
        and request.definition is not None
        and request.definition.schedule.cron == EVERY_SECOND
        and request.definition.overlap == "allow"
    }
    touched = {request.job for request in history.requests if request.verb != "create"}
    return (created - touched) & {job.job for job in history.jobs}
