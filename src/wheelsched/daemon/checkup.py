"""A checkup of a database and of the shards on it, as `wheelsched doctor` tells it.

Invariant: nothing is changed: what is sent is read back and forgotten.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from wheelsched.clock import SystemClock
from wheelsched.config import StoreConfig
from wheelsched.core.duration import MILLISECOND, SECOND
from wheelsched.core.overdue import lateness_of
from wheelsched.core.partition import PARTITIONS
from wheelsched.daemon.database import Operator, open_operator, read_schema
from wheelsched.errors import StoreError, StoreUnavailable
from wheelsched.ports import Hint
from wheelsched.store.database import Database
from wheelsched.store.hints import PostgresHints, hint

NO_JOB: Final = UUID(int=0)  # a hint for it makes a shard read a job that is not there
SLOW_US: Final = 50 * MILLISECOND
HINT_TIMEOUT_S: Final = 5
CLOCK_APART_US: Final = SECOND


class Verdict(StrEnum):
    """How something is."""

    FINE = "ok"
    POOR = "warning"
    BAD = "failed"


class Finding(Struct, frozen=True, kw_only=True):
    """What was looked at, how it is, and what to do about it."""

    subject: str
    verdict: Verdict = Verdict.FINE
    detail: str
    advice: str | None = None


async def check_database(url: str) -> list[Finding]:
    """Everything that can be asked of a database; the first that is bad ends it."""
    found = []
    async with aclosing(_findings(url)) as findings:
        async for finding in findings:
            found.append(finding)
            if finding.verdict is Verdict.BAD:
                break
    return found


async def _findings(url: str) -> AsyncGenerator[Finding, None]:
    try:
        yield await _check_schema(url)
        async with open_operator(url) as operator:
            yield await _check_round_trip(operator)
            yield _check_clock(operator)
            yield await _check_leases(operator)
            yield await _check_arming(operator)
            yield await _check_drafts(operator)
        yield await _check_hints(url)
    except StoreError as error:
        yield Finding(
            subject="database",
            verdict=Verdict.BAD,
            detail=_reason(error),
            advice="check that it runs, the address, the password and the rights of the account",
        )


def _reason(error: StoreError) -> str:
    """Why the database does not answer; nothing was written, so there is nothing to send again."""
    if isinstance(error, StoreUnavailable) and (cause := error.__cause__) is not None:
        return f"does not answer: {str(cause) or type(cause).__name__}"
    return str(error)


def _finding(subject: str, detail: str, advice: str | None) -> Finding:
    """What is fine, unless there is something to do about it."""
    verdict = Verdict.FINE if advice is None else Verdict.POOR
    return Finding(subject=subject, verdict=verdict, detail=detail, advice=advice)


async def _check_schema(url: str) -> Finding:
    schema = await read_schema(url)
    if schema.pending:
        return Finding(
            subject="schema",
            verdict=Verdict.BAD,
            detail=f"lacks {', '.join(schema.pending)}",
            advice="run `wheelsched db migrate --database-url …`",
        )
    return Finding(subject="schema", detail=f"current: {schema.applied[-1]}")


async def _check_round_trip(operator: Operator) -> Finding:
    error_us = operator.clock.error_us
    detail = f"answers; a round trip takes {2 * error_us / MILLISECOND:.1f} ms at best"
    advice = None
    if 2 * error_us > SLOW_US:
        advice = "run the shards nearer to it: no run is on time by less than half of that"
    return _finding("database", detail, advice)


def _check_clock(operator: Operator) -> Finding:
    apart_us = operator.clock.now_us() - SystemClock.wall_us()
    detail = f"the database's is {apart_us / MILLISECOND:+,.1f} ms from this machine's"
    advice = None
    if abs(apart_us) > CLOCK_APART_US:
        advice = "runs are due by the database's; let NTP set both, or workers refuse signatures"
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
            verdict=Verdict.BAD,
            detail=detail,
            advice="start a shard with `wheelsched shard --database-url …`: nothing fires now",
        )
    advice = None
    if expired or free:
        detail = f"{detail}, {len(expired)} leases have expired"
        advice = "ask again in ten seconds; if it stays so, look into the logs of the shards"
    return _finding("leases", detail, advice)


async def _check_arming(operator: Operator) -> Finding:
    """Timers and retries that are due are armed, in every partition."""
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
        verdict=Verdict.BAD,
        detail=f"{late}; {len(stuck)} partitions are late, owned by {shards}",
        advice="jobs in these partitions do not fire: look into the logs of their shards for "
        "sweep.slow, store.awaited and job.set_aside, and restart a shard that does not recover",
    )


async def _check_drafts(operator: Operator) -> Finding:
    """Jobs that applications scheduled in transactions of their own."""
    refused, waiting = await operator.grants.count_drafts()
    detail = f"{refused} that applications scheduled are refused, {waiting} wait to be planned"
    advice = None
    if waiting:
        advice = "look into the logs of the shards: planning takes a moment, at most a minute"
    elif refused:
        advice = "`wheelsched job list --state refused` names them, `job get` says why"
    return _finding("jobs", detail, advice)


async def _check_hints(url: str) -> Finding:
    """Sends a hint, and waits for it to come back."""
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
                verdict=Verdict.POOR,
                detail=f"none arrived within {HINT_TIMEOUT_S} s",
                advice="connect to Postgres itself: a pooler in transaction mode drops NOTIFY. "
                "Without it changes are seen once a minute",
            )
        took_ms = (machine.now_ns() - sent_ns) / 1_000_000
    return Finding(subject="hints", detail=f"arrive; this one took {took_ms:.1f} ms")
