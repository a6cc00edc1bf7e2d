"""Outcomes and heartbeats that go to the database and not over a link.

Invariant: an outcome is accepted only with the token of the latest attempt of its run.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final, Protocol
from uuid import UUID

from wheelsched.core.model import Run, RunKey, RunState
from wheelsched.core.outcome import Gone, Outcome, Succeeded, status_and_error
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.core.policies.settlement import decide
from wheelsched.core.state import move_run
from wheelsched.errors import IllegalMove, JobChanged, JobNotFound, JobNotPausable
from wheelsched.ports import Caller, Ending, HistoryStore, JobStore, LiveRun, Settled
from wheelsched.ports.work import Attempted, Held, Receipt, Reported, WorkerOutcome

ACTOR: Final = "worker"
STALE: Final = "another attempt of the run has begun, or the run has ended"
UNKNOWN: Final = "no such run"
ACCEPTED: Final = Reported(is_accepted=True)
REASONS: Final = {
    Receipt.WRITTEN: ACCEPTED,
    Receipt.STALE: Reported(is_accepted=False, reason=STALE),
    Receipt.UNKNOWN: Reported(is_accepted=False, reason=UNKNOWN),
}


class Reports(Protocol):
    """Where outcomes go without a link, and all heartbeats."""

    async def finish(
        self, tenant_id: UUID, outcomes: Sequence[WorkerOutcome]
    ) -> list[Reported]: ...

    async def heartbeat(
        self, tenant_id: UUID, attempts: Sequence[Attempted], leases_us: Sequence[int | None]
    ) -> list[Held]: ...


class StoredReports:
    """`Reports` in the database."""

    def __init__(
        self,
        history: HistoryStore,
        jobs: JobStore,
        now_us: Callable[[], int],
        random: Random,
    ) -> None:
        self._history = history
        self._jobs = jobs
        self._now_us = now_us
        self._random = random

    async def finish(self, tenant_id: UUID, outcomes: Sequence[WorkerOutcome]) -> list[Reported]:
        caller = Caller(tenant_id, ACTOR)
        keys = sorted({reported.attempt.key for reported in outcomes})
        found = {live.run.key: live for live in await self._history.read_live(caller, keys)}
        settled = [self._decide(reported, found) for reported in outcomes]
        receipts = iter(
            await self._history.answers(
                caller, [one for one in settled if isinstance(one, Settled)]
            )
        )
        answers = [REASONS[next(receipts) if isinstance(one, Settled) else one] for one in settled]
        for reported, answer in zip(outcomes, answers, strict=True):
            if answer.is_accepted and isinstance(reported.outcome, Gone):
                await self._pause(caller, found[reported.attempt.key])
        return answers

    async def _pause(self, caller: Caller, live: LiveRun) -> None:
        """Pauses the job of a run, unless it was resumed or edited since it was armed."""
        if live.version is not None:
            with suppress(JobChanged, JobNotFound, JobNotPausable):
                await self._jobs.pause(caller, live.run.job_id, live.version)

    async def heartbeat(
        self, tenant_id: UUID, attempts: Sequence[Attempted], leases_us: Sequence[int | None]
    ) -> list[Held]:
        return await self._history.heartbeats(Caller(tenant_id, ACTOR), attempts, leases_us)

    def _decide(self, reported: WorkerOutcome, found: dict[RunKey, LiveRun]) -> Settled | Receipt:
        """What to write, or the answer if nothing is to be written."""
        live, attempt = found.get(reported.attempt.key), reported.attempt
        if live is None:
            return Receipt.UNKNOWN
        final = _final_state(reported.outcome)
        if live.run.token != attempt.token:
            return Settled(attempt.key, attempt.token, Ending(state=final))  # noted as stale
        if live.run.state is final:
            return Receipt.WRITTEN  # the shard has written it, and its receipt was lost
        ending = self._ending(live, reported.outcome)
        return Receipt.STALE if ending is None else Settled(attempt.key, attempt.token, ending)

    def _ending(self, live: LiveRun, outcome: Outcome) -> Ending | None:
        """How the attempt ends; None if the run has ended, or nothing was tried since a request."""
        run, now_us = live.run, self._now_us()
        if run.attempt_in_hand < 1:
            return None
        settlement = decide(
            RetryPolicy(max_attempts=1) if live.retry is None else live.retry,
            outcome,
            attempt=run.attempt_in_hand,
            now_us=now_us,
            random=self._random,
        )
        try:
            state = move_run(run.state, settlement.event)
        except IllegalMove:
            return None
        status, error = status_and_error(outcome)
        return Ending(
            state=state,
            started_at_us=_began_us(run, now_us),
            finished_at_us=now_us,
            http_status=status,
            error=error,
            retry_at_us=settlement.retry_at_us,
        )


def _final_state(outcome: Outcome) -> RunState:
    return RunState.SUCCEEDED if isinstance(outcome, Succeeded) else RunState.DEAD


def _began_us(run: Run, now_us: int) -> int:
    """When the latest attempt began; for a later attempt than the first, when it was armed."""
    known_us = run.started_at_us if run.attempt <= 1 else run.armed_at_us
    return next((us for us in (known_us, run.armed_at_us) if us is not None), now_us)
