"""Outcomes, heartbeats and returned runs, as workers report them in every protocol.

Invariant: the answer has one item for each reported one, in the same order. An item that names no
run is answered, and does not fail the others.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence
from http import HTTPStatus
from typing import Final, TypeVar
from uuid import UUID

from wheelsched.core.model import parse_run_id
from wheelsched.core.outcome import Failed, Outcome, Succeeded, reported
from wheelsched.errors import InvalidRunId
from wheelsched.ports.work import Attempted, Held, QueueRun, Reported, WorkerOutcome, WorkSource
from wheelsched.values.duration import parse_duration
from wheelsched.wire.queue import (
    HeartbeatAnswer,
    HeartbeatItem,
    OutcomeAnswer,
    OutcomeItem,
    ReturnedItem,
    read_lease,
)

UNKNOWN_RUN: Final = Reported(is_accepted=False, reason="not a valid run id")
NOT_RETURNED: Final = "the run does not belong to this claim, or another process handed it out"
SUCCEEDED: Final = Succeeded()
MAX_LEASES: Final = 100_000

Answer = TypeVar("Answer", Reported, Held)


class Reports:
    """Takes the reports of workers."""

    def __init__(self, source: WorkSource) -> None:
        self._source = source
        self._lease_us: OrderedDict[Attempted, int] = OrderedDict()

    def keep_lease(self, runs: Iterable[QueueRun], lease_us: int) -> None:
        """Heartbeats for these runs without a lease of their own have this one."""
        for run in runs:
            self._lease_us[run.attempt] = lease_us
        while len(self._lease_us) > MAX_LEASES:
            self._lease_us.popitem(last=False)

    async def finish(self, tenant_id: UUID, items: Sequence[OutcomeItem]) -> list[OutcomeAnswer]:
        """Reports how attempts ended."""
        outcomes = [
            SUCCEEDED if item.ok else _outcome_of(number, item) for number, item in enumerate(items)
        ]
        known = [
            WorkerOutcome(attempt=attempt, outcome=outcome)
            for item, outcome in zip(items, outcomes, strict=True)
            if (attempt := _attempted(item.run_id, item.token)) is not None
        ]
        answers = await self._source.finish(tenant_id, known) if known else []
        if self._lease_us:
            for each in known:
                self._lease_us.pop(each.attempt, None)
        if len(known) < len(items):
            answers = _with_unknown(items, answers, UNKNOWN_RUN)
        return [
            OutcomeAnswer(run_id=item.run_id, accepted=answer.is_accepted, reason=answer.reason)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def heartbeat(
        self, tenant_id: UUID, items: Sequence[HeartbeatItem], lease_us: int | None = None
    ) -> list[HeartbeatAnswer]:
        """Keeps runs; `lease_us` is the lease of those without their own."""
        known: list[Attempted] = []
        leases_us: list[int | None] = []
        for number, item in enumerate(items):
            own_us = read_lease(item.lease, pointer=f"/{number}/lease")
            attempt = _attempted(item.run_id, item.token)
            if attempt is not None:
                known.append(attempt)
                leases_us.append(own_us or self._lease_us.get(attempt, lease_us))
        answers = await self._source.heartbeat(tenant_id, known, leases_us) if known else []
        if len(known) < len(items):
            answers = _with_unknown(items, answers, Held(is_held=False))
        return [
            HeartbeatAnswer(run_id=item.run_id, held=answer.is_held, cancel=answer.is_cancelled)
            for item, answer in zip(items, answers, strict=True)
        ]

    def give_back(
        self,
        tenant_id: UUID,
        items: Sequence[ReturnedItem],
        release: Callable[[Attempted], bool] = lambda _: True,
    ) -> list[OutcomeAnswer]:
        """Returns runs that a worker has not begun, if `release` says that it has them."""
        attempts = [_attempted(item.run_id, item.token) for item in items]
        known = [each for each in attempts if each is not None and release(each)]
        returned = self._source.give_back(tenant_id, known) if known else set()
        for attempt in known:
            self._lease_us.pop(attempt, None)
        return [
            _returned(item.run_id, attempt, returned)
            for item, attempt in zip(items, attempts, strict=True)
        ]


def _returned(
    run_id: str, attempt: Attempted | None, returned: Container[Attempted]
) -> OutcomeAnswer:
    if attempt is None:
        return OutcomeAnswer(run_id=run_id, accepted=False, reason=UNKNOWN_RUN.reason)
    if attempt not in returned:
        return OutcomeAnswer(run_id=run_id, accepted=False, reason=NOT_RETURNED)
    return OutcomeAnswer(run_id=run_id, accepted=True)


def _attempted(run_id: str, token: int) -> Attempted | None:
    try:
        return Attempted(parse_run_id(run_id), token)
    except InvalidRunId:
        return None


def _outcome_of(number: int, item: OutcomeItem) -> Outcome:
    """The outcome of an attempt that did not succeed."""
    after_us = None
    if item.retry_after is not None:
        after_us = parse_duration(item.retry_after, pointer=f"/{number}/retry_after")
    if item.retry and not item.gone and (item.too_early or after_us is not None):
        status = HTTPStatus.TOO_EARLY.value if item.too_early else None
        error = reported(ok=False, error=item.error)
        assert isinstance(error, Failed)
        return Failed(error=error.error, http_status=status, retry_after_us=after_us)
    return reported(ok=False, error=item.error, retry=item.retry, gone=item.gone)


def _with_unknown(
    items: Sequence[OutcomeItem] | Sequence[HeartbeatItem],
    answers: Iterable[Answer],
    unknown: Answer,
) -> list[Answer]:
    """The answers, with one for each item whose run id is invalid."""
    rest = iter(answers)
    return [
        unknown if _attempted(item.run_id, item.token) is None else next(rest) for item in items
    ]
