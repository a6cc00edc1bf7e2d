"""The results that the stages report to *settle*, and the rows that are written for them.

Invariant: a result carries the token of its attempt and is written under no other. Two results of
one run are written one after the other, in the order in which they were put.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Container, Iterable, Sequence
from random import Random
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.clock import DatabaseClock
from wheelsched.config import SettleConfig
from wheelsched.core.model import Run, RunKey, RunState, SkipReason
from wheelsched.core.outcome import Failed, Outcome, status_and_error
from wheelsched.core.policies import settlement
from wheelsched.core.state import JobEvent, move_run
from wheelsched.logs import about_run
from wheelsched.ports import Ending, Settled
from wheelsched.shard.runs.armed_run import ArmedRun
from wheelsched.shard.runs.registry import RunRegistry

log = structlog.get_logger("wheelsched.shard")

UNBUILDABLE = "the request could not be built from the definition of the job"


class Report(Struct, eq=False, kw_only=True, gc=False):
    """The outcome of attempts that were sent together. They have one due time, and either all of
    them are first attempts or none is."""

    runs: Sequence[ArmedRun]
    outcome: Outcome
    finished_us: int
    # Resolved when it was written, with the runs whose outcome was stale or refused.
    receipt: asyncio.Future[set[RunKey] | None] | None = None

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def keys(self) -> list[RunKey]:
        return [run.key for run in self.runs]

    @property
    def lateness_us(self) -> int | None:
        """How long after their time first attempts were sent; None for further attempts."""
        run = self.runs[0]
        if run.started_us is None or not run.is_first:
            return None
        return max(run.started_us - run.fire_at_us, 0)


class Ruling(Struct, eq=False, kw_only=True, gc=False):
    """The end of a run that was decided without an attempt: skipped, cancelled or dead."""

    key: RunKey
    token: int
    state: RunState
    skip_reason: SkipReason | None = None
    error: str | None = None
    decided_us: int = 0  # when it was put into the queue

    def __len__(self) -> int:
        return 1

    @property
    def keys(self) -> list[RunKey]:
        return [self.key]


def rule_deleted(run: Run, *, may_be_carried: bool = False) -> Ruling:
    """The end of a run whose job was deleted.

    A run that is marked as carried counts as sent: it is cancelled, not skipped.
    """
    assert run.token is not None
    is_unsent = run.state is RunState.ARMED and run.attempt == 0 and not may_be_carried
    return Ruling(
        key=run.key,
        token=run.token,
        state=RunState.SKIPPED if is_unsent else RunState.CANCELLED,
        skip_reason=SkipReason.DELETED if is_unsent else None,
    )


def rule_paused(run: Run) -> Ruling:
    """The end of a run that waited for a worker when its job was paused."""
    assert run.token is not None
    return Ruling(
        key=run.key, token=run.token, state=RunState.SKIPPED, skip_reason=SkipReason.PAUSED
    )


def rule_unbuildable(key: RunKey, token: int) -> Ruling:
    """The end of a run whose request cannot be built. Call it in an exception handler."""
    log.exception("run.unbuildable", **about_run(key, token))
    return Ruling(key=key, token=token, state=RunState.DEAD, error=UNBUILDABLE)


def settle_ruling(ruling: Ruling) -> Settled:
    """The row of a run that ends without an attempt."""
    ending = Ending(
        state=ruling.state,
        finished_at_us=ruling.decided_us,
        skip_reason=ruling.skip_reason,
        error=ruling.error,
        is_attempt=False,
    )
    return Settled(ruling.key, ruling.token, ending)


def settle_attempts(report: Report, now_us: int, random: Random) -> list[Settled]:
    """The row of each run of a report."""
    runs = report.runs
    if isinstance(report.outcome, Failed):  # each has its own retry policy and random backoff
        endings = [_end(report, run, now_us, random) for run in runs]
    else:
        endings = [_end(report, runs[0], now_us, random)] * len(runs)
    return [Settled(run.key, run.token, ending) for run, ending in zip(runs, endings, strict=True)]


def gone_jobs(reports: Iterable[Report | Ruling], unwritten: Container[RunKey]) -> dict[UUID, int]:
    """The jobs whose worker responded 410, with the version that was sent.

    A response that was not written, because it is stale, says nothing about its job.
    """
    return {
        run.key.job_id: run.version
        for report in reports
        if isinstance(report, Report) and settlement.job_event(report.outcome) is JobEvent.GONE
        for run in report.runs
        if run.key not in unwritten
    }


def _end(report: Report, run: ArmedRun, now_us: int, random: Random) -> Ending:
    decided = settlement.decide(
        run.rules.retry, report.outcome, attempt=run.attempt, now_us=now_us, random=random
    )
    http_status, error = status_and_error(report.outcome)
    return Ending(
        state=move_run(RunState.ARMED, decided.event),
        started_at_us=run.started_us,
        finished_at_us=report.finished_us,
        lateness_us=report.lateness_us,
        http_status=http_status,
        error=error,
        retry_at_us=decided.retry_at_us,
    )


class ResultQueue:
    """Results that wait to be written. Those that a next run of the same job waits for go first.

    The limit on runs in flight bounds it: a run in flight has at most one result.
    """

    def __init__(self, registry: RunRegistry, clock: DatabaseClock, config: SettleConfig) -> None:
        self._registry = registry
        self._clock = clock
        self._config = config
        self._awaited: deque[Report | Ruling] = deque()  # by a next run of the same job
        self._awaited_keys = Counter[RunKey]()  # the runs in it, and how often
        self._others: deque[Report | Ruling] = deque()
        self._writing: set[RunKey] = set()  # the runs that are being written
        self.runs = 0  # in both queues
        self.arrived = asyncio.Event()
        self._is_drained = asyncio.Event()
        self._is_drained.set()

    def put(self, result: Report | Ruling) -> None:
        if isinstance(result, Ruling):
            result.decided_us = self._clock.now_us()
            self._registry.rulings.add(result.key)
        if self._is_awaited(result):
            self._awaited.append(result)
            self._awaited_keys.update(result.keys)
        else:
            self._others.append(result)
        self.runs += len(result)
        self._is_drained.clear()
        self.arrived.set()

    @property
    def has_awaited(self) -> bool:
        """Whether a run waits for one of the results."""
        return bool(self._awaited)

    @property
    def is_backed_up(self) -> bool:
        """Whether the queue of results is so long that less urgent work should wait."""
        return self.runs > self._config.backed_up_at

    def take(self, *, awaited_only: bool) -> tuple[list[Report | Ruling], set[RunKey]]:
        """Takes a batch and its runs. No run is in it twice, and none is being written.

        If there are results that no run waits for, they get at least half of the batch.
        """
        batch = self._config.batch
        limits = [(self._awaited, batch if awaited_only or not self._others else batch // 2)]
        if not awaited_only:
            limits.append((self._others, batch))
        taken: list[Report | Ruling] = []
        taken_keys: set[RunKey] = set()
        for queue, most in limits:
            while queue and len(taken_keys) < most:
                keys = set(queue[0].keys)  # each is hashed once
                if not (taken_keys.isdisjoint(keys) and self._writing.isdisjoint(keys)):
                    break
                taken.append(queue.popleft())
                taken_keys |= keys
                if queue is self._awaited:
                    self._forget_awaited(keys)
            else:
                continue
            break
        self.runs -= sum(map(len, taken))
        self._writing |= taken_keys
        if not self.runs:
            self.arrived.clear()
        return taken, taken_keys

    def written(self, keys: set[RunKey]) -> None:
        """Ends the write of these runs: further results of them may be taken."""
        self._writing -= keys
        if not self.runs and not self._writing:
            self._is_drained.set()

    async def drained(self) -> None:
        """Returns when every result that was put is written."""
        await self._is_drained.wait()

    def _is_awaited(self, result: Report | Ruling) -> bool:
        """Whether a next run of one of its jobs waits for it, or is due soon.

        Two results of one run are in the same queue, so the first one is written first.
        """
        if self._awaited_keys and not self._awaited_keys.keys().isdisjoint(result.keys):
            return True
        if isinstance(result, Ruling):
            return False
        registry = self._registry
        followed = [run for run in result.runs if run.is_followed]
        if followed or registry.has_waiting(result.runs):
            return not any(run.key in registry.rulings for run in result.runs)
        return False

    def _forget_awaited(self, keys: Iterable[RunKey]) -> None:
        for key in keys:
            self._awaited_keys[key] -= 1
            if not self._awaited_keys[key]:
                del self._awaited_keys[key]
