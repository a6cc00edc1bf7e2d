"""Checks of a database and its shards, for `wheelsched doctor`.

Invariant: nothing is changed; the test hint has no effect.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from wheelsched.clock import SystemClock
from wheelsched.config import StoreConfig
from wheelsched.core.overdue import lateness_of
from wheelsched.core.partition import PARTITIONS
from wheelsched.daemon.database import Operator, open_operator, read_schema
from wheelsched.errors import StoreError, StoreUnavailable
from wheelsched.ports import Hint
from wheelsched.store.connections.database import Database
from wheelsched.store.for_shard.hints import PostgresHints, hint
from wheelsched.store.schema.replication import Replication, read_replication
from wheelsched.values.counting import counted
from wheelsched.values.duration import MILLISECOND, SECOND
from wheelsched.wire.instant import instant, instant_text

NO_JOB: Final = UUID(int=0)  # no such job, so a hint for it has no effect
SLOW_US: Final = 50 * MILLISECOND
HINT_TIMEOUT_S: Final = 5
CLOCK_APART_US: Final = SECOND
LOSS_ADVICE: Final = (
    "jobs, changes and outcomes that were committed shortly before are lost: apply your job files "
    "again and repeat recent changes"
)


class Health(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(Struct, frozen=True, kw_only=True):
    """What was checked, its result, and what to do about it."""

    subject: str
    verdict: Health = Health.OK
    detail: str
    advice: str | None = None


async def check_database(url: str) -> list[Finding]:
    """Runs all checks on a database; stops at the first failure."""
    found = []
    async with aclosing(_findings(url)) as findings:
        async for finding in findings:
            found.append(finding)
            if finding.verdict is Health.FAILED:
                break
    return found


async def _findings(url: str) -> AsyncGenerator[Finding, None]:
    try:
        yield await _check_schema(url)
        async with open_operator(url) as operator:
            yield await _check_round_trip(operator)
            yield _check_clock(operator)
            yield await _check_leases(operator)
            yield await _check_links(operator)
            yield await _check_arming(operator)
            yield await _check_replication(operator)
            yield await _check_drafts(operator)
        yield await _check_hints(url)
    except StoreError as error:
        yield Finding(
            subject="database",
            verdict=Health.FAILED,
            detail=_reason(error),
            advice="check that the server runs, and the URL, password and privileges",
        )


def _reason(error: StoreError) -> str:
    """Why the database did not respond. Unlike the error's message, it does not mention writes."""
    if isinstance(error, StoreUnavailable) and (cause := error.__cause__) is not None:
        return f"unreachable: {str(cause) or type(cause).__name__}"
    return str(error)


def _finding(subject: str, detail: str, advice: str | None) -> Finding:
    """A finding that is a warning if there is advice."""
    verdict = Health.OK if advice is None else Health.WARNING
    return Finding(subject=subject, verdict=verdict, detail=detail, advice=advice)


async def _check_schema(url: str) -> Finding:
    schema = await read_schema(url)
    if schema.pending:
        return Finding(
            subject="schema",
            verdict=Health.FAILED,
            detail=f"pending migrations: {', '.join(schema.pending)}",
            advice="run `wheelsched db migrate --database-url …`",
        )
    return Finding(subject="schema", detail=f"up to date: {schema.applied[-1]}")


async def _check_round_trip(operator: Operator) -> Finding:
    error_us = operator.clock.error_us
    detail = f"reachable; the fastest round trip took {2 * error_us / MILLISECOND:.1f} ms"
    advice = None
    if 2 * error_us > SLOW_US:
        advice = (
            "run the shards closer to the database; half of this adds to the lateness of every run"
        )
    return _finding("database", detail, advice)


def _check_clock(operator: Operator) -> Finding:
    apart_us = operator.clock.now_us() - SystemClock.wall_us()
    apart_ms = round(apart_us / MILLISECOND, 1) + 0.0  # no negative zero
    detail = f"the database clock differs by {apart_ms:+,.1f} ms from this machine's"
    advice = None
    if abs(apart_us) > CLOCK_APART_US:
        advice = "runs follow the database clock; sync both with NTP, or workers reject signatures"
    return _finding("clock", detail, advice)


async def _check_leases(operator: Operator) -> Finding:
    survey = await operator.stores.leases.survey()
    expired = [shard for shard in survey.shards if shard.is_expired]
    free = [ownership for ownership in survey.partitions if ownership.owner is None]
    living = len(survey.shards) - len(expired)
    detail = (
        f"{living} shards hold a lease, {len(free)} of {len(survey.partitions)} partitions are free"
    )
    if not living:
        return Finding(
            subject="leases",
            verdict=Health.FAILED,
            detail=detail,
            advice="start one with `wheelsched shard --database-url …`; without it no job fires",
        )
    advice = None
    if expired or free:
        detail = f"{detail}, {len(expired)} leases have expired"
        advice = "check again in ten seconds; if it persists, see the logs of the shards"
    return _finding("leases", detail, advice)


async def _check_links(operator: Operator) -> Finding:
    """Checks that the API reaches the shards to hand their runs to workers that pull."""
    survey = await operator.stores.leases.survey()
    living = {shard.shard_id for shard in survey.shards if not shard.is_expired}
    linked = living & {shard.shard_id for shard in await operator.stores.links.shards()}
    if not linked:
        detail = (
            "no shard accepts links; workers that pull need `wheelsched shard --link HOST:PORT`"
        )
        return Finding(subject="links", detail=detail)
    advice = None
    if linked != living:
        advice = "start the others with --link HOST:PORT too; their runs for queues wait"
    return _finding("links", f"{len(linked)} of {len(living)} shards accept links", advice)


async def _check_arming(operator: Operator) -> Finding:
    """Checks that due timers are armed in every partition."""
    unarmed = await operator.stores.timers.oldest_unarmed(range(PARTITIONS))
    now_us = operator.clock.now_us()
    late = lateness_of(unarmed, now_us)
    if not late.is_alarming:
        return Finding(subject="arming", detail=str(late))
    stuck = [each.partition for each in unarmed if lateness_of([each], now_us).is_alarming]
    survey = await operator.stores.leases.survey()
    owners = {each.owner for each in survey.partitions if each.partition in stuck}
    shards = ", ".join(sorted(str(owner) if owner else "no shard" for owner in owners))
    return Finding(
        subject="arming",
        verdict=Health.FAILED,
        detail=f"{late}; {len(stuck)} partitions are late, owned by {shards}",
        advice="jobs in these partitions do not fire; search the logs of their shards for "
        "database.went_back, sweep.slow, store.retried and job.set_aside, and restart a shard that "
        "does not recover",
    )


async def _check_replication(operator: Operator) -> Finding:
    """Checks whether committed data was lost, and whether a failover could lose some."""
    survey = await operator.stores.leases.survey()
    replication = await read_replication(operator.database)
    went_back_us = [shard.went_back_at_us for shard in survey.shards if shard.went_back_at_us]
    return assess_replication(replication, went_back_us)


def assess_replication(replication: Replication, went_back_us: Sequence[int]) -> Finding:
    """The finding about replication. `went_back_us` are the times at which shards noticed that the
    database had lost committed data."""
    detail = _describe_replication(replication)
    advice = None
    if went_back_us:
        detail = (
            f"{counted(len(went_back_us), 'shard')} noticed that the database went back to an "
            f"older state, last at {instant_text(instant(max(went_back_us)))}; {detail}"
        )
        advice = LOSS_ADVICE
        if not replication.is_synchronous:
            advice = f"{advice}; use synchronous replication to lose nothing at a failover"
    elif replication.standbys and not replication.is_synchronous:
        advice = (
            "a failover loses what the standby has not received; "
            "set synchronous_standby_names, or synchronous_mode in Patroni"
        )
    return _finding("replication", detail, advice)


def _describe_replication(replication: Replication) -> str:
    if not replication.standbys:
        return "no standby is connected"
    mode = "synchronous" if replication.is_synchronous else "asynchronous"
    lag = (
        "" if replication.lag_bytes is None else f", at most {replication.lag_bytes:,} bytes behind"
    )
    return f"{mode}, {counted(replication.standbys, 'standby')}{lag}"


async def _check_drafts(operator: Operator) -> Finding:
    """Checks the jobs that applications scheduled in SQL."""
    refused, waiting = await operator.grants.count_drafts()
    detail = f"{refused} jobs scheduled in SQL are refused, {waiting} wait to be planned"
    advice = None
    if waiting:
        advice = "planning takes at most a minute; if it persists, see the logs of the shards"
    elif refused:
        advice = "list them with `wheelsched job list --state refused`; `job get` shows the reason"
    return _finding("jobs", detail, advice)


async def _check_hints(url: str) -> Finding:
    """Sends a hint and waits for it to come back."""
    arrived = asyncio.Event()

    def receive(received: Hint) -> None:
        if received.job_id == NO_JOB:
            arrived.set()

    config = StoreConfig(url=url, role="owner", connections=1)
    machine = SystemClock()
    async with (
        await PostgresHints.open(config, receive),
        await Database.open(config) as database,
    ):
        sent_ns = machine.now_ns()
        async with database.connection() as connection:
            await hint(connection, NO_JOB)
        try:
            async with asyncio.timeout(HINT_TIMEOUT_S):
                await arrived.wait()
        except TimeoutError:
            return Finding(
                subject="hints",
                verdict=Health.WARNING,
                detail=f"none arrived within {HINT_TIMEOUT_S} s",
                advice="connect to Postgres directly: a pooler in transaction mode drops NOTIFY, "
                "and then changes take up to a minute",
            )
        took_ms = (machine.now_ns() - sent_ns) / 1_000_000
    return Finding(subject="hints", detail=f"a hint took {took_ms:.1f} ms")
