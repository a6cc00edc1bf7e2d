"""Runs: their history, what people ask of them, and what workers report.

Invariant: a report counts only with the token of the latest attempt; a stale one gets 409 and is
noted in the history.
"""

from msgspec.structs import replace

from wheelsched.api.answers import run_answer
from wheelsched.api.cursors import Cursors
from wheelsched.api.operation import Answer, Call, NoQuery, Operation
from wheelsched.api.pages import PageQuery, cut
from wheelsched.api.surroundings import Surroundings
from wheelsched.api.waiting import Waiting, is_overdue
from wheelsched.core.model import Run, RunKey, RunState, format_run_id
from wheelsched.core.outcome import Failed, Outcome, Rejected, Succeeded, reported
from wheelsched.core.policy import RetryPolicy
from wheelsched.core.settlement import decide
from wheelsched.core.state import move_run
from wheelsched.errors import IllegalMove, JobNotFound, RunNotLive, TokenStale
from wheelsched.ports import Caller, Ending, HistoryStore, JobStore, Settled
from wheelsched.wire.run import (
    CancelAnswer,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
    RunAnswer,
    RunPage,
)
from wheelsched.wire.tenant import Scope


class Runs:
    """What is asked of runs."""

    def __init__(
        self,
        jobs: JobStore,
        history: HistoryStore,
        surroundings: Surroundings,
        waiting: Waiting,
    ) -> None:
        self._jobs = jobs
        self._history = history
        self._surroundings = surroundings
        self._waiting = waiting

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/jobs/{job_id}/runs",
                summary="List the runs of a job, latest first",
                scope=Scope.READ,
                handle=self.list_runs,
                query=PageQuery,
                answer=RunPage,
            ),
            Operation(
                method="GET",
                path="/runs/{run_id}",
                summary="Read a run with every attempt",
                scope=Scope.READ,
                handle=self.read,
                answer=RunAnswer,
            ),
            Operation(
                method="POST",
                path="/runs/{run_id}/cancel",
                summary="End a live run",
                scope=Scope.WRITE,
                handle=self.cancel,
                answer=CancelAnswer,
            ),
            Operation(
                method="POST",
                path="/runs/{run_id}/retry",
                summary="Try a dead or cancelled run again",
                scope=Scope.WRITE,
                handle=self.retry,
                answer=RunAnswer,
                status=202,
            ),
            Operation(
                method="POST",
                path="/runs/{run_id}/heartbeat",
                summary="A worker is still at it",
                scope=Scope.WRITE,
                handle=self.heartbeat,
                body=HeartbeatRequest,
                answer=None,
                status=204,
            ),
            Operation(
                method="POST",
                path="/runs/{run_id}/complete",
                summary="A worker did it",
                scope=Scope.WRITE,
                handle=self.complete,
                body=CompleteRequest,
                answer=RunAnswer,
            ),
            Operation(
                method="POST",
                path="/runs/{run_id}/fail",
                summary="A worker could not do it",
                scope=Scope.WRITE,
                handle=self.fail,
                body=FailRequest,
                answer=RunAnswer,
            ),
        )

    async def list_runs(self, call: Call[PageQuery, None]) -> Answer:
        job_id, query = call.job_id, call.query
        cursors = Cursors(call.caller.tenant_id, f"runs of {job_id}")
        before_us = None if query.cursor is None else cursors.read(query.cursor, int)
        found = await self._history.list_runs(call.caller, job_id, query.limit + 1, before_us)
        if not found:
            await self._jobs.read(call.caller, job_id)  # or there is no such job
        page, last = cut(found, query.limit)
        return Answer(
            body=RunPage(
                items=[run_answer(run) for run in page],
                next_cursor=None if last is None else cursors.write(last.due_us),
            )
        )

    async def read(self, call: Call[NoQuery, None]) -> Answer:
        run, attempts = await self._history.get_run(call.caller, call.run_key)
        names = await self._jobs.read_names(call.caller, [run.job_id])
        reason = await self._reason(call, run) if is_overdue(run, call.now_us) else None
        answer = replace(
            run_answer(run, attempts), job_name=names.get(run.job_id), waiting_for=reason
        )
        return Answer(body=answer)

    async def _reason(self, call: Call[NoQuery, None], run: Run) -> str | None:
        try:
            job = await self._jobs.get(call.caller, run.job_id)
        except JobNotFound:
            return None
        return await self._waiting.reason(run, job, call.now_us)

    async def cancel(self, call: Call[NoQuery, None]) -> Answer:
        in_time = await self._history.cancel(call.caller, call.run_key)
        return Answer(body=CancelAnswer(run_id=format_run_id(call.run_key), in_time=in_time))

    async def retry(self, call: Call[NoQuery, None]) -> Answer:
        if await self._history.retry(call.caller, [call.run_key]):
            run, _ = await self._history.get_run(call.caller, call.run_key)
            if run.state in (RunState.DEAD, RunState.CANCELLED):
                raise RunNotLive("the job of this run was deleted: it cannot be tried again")
            raise RunNotLive(f"a run that is {run.state} cannot be tried again")
        return await self._answer(call.caller, call.run_key, status=202)

    async def heartbeat(self, call: Call[NoQuery, HeartbeatRequest]) -> Answer:
        if not await self._history.heartbeat(call.caller, call.run_key, call.body.token):
            await self._history.get_run(call.caller, call.run_key)  # or there is no such run
            raise TokenStale
        return Answer(status=204)

    async def complete(self, call: Call[NoQuery, CompleteRequest]) -> Answer:
        return await self._settle(call, call.body.token, Succeeded())

    async def fail(self, call: Call[NoQuery, FailRequest]) -> Answer:
        outcome = reported(ok=False, error=call.body.error, retry=call.body.retry)
        return await self._settle(call, call.body.token, outcome)

    async def _settle(
        self,
        call: Call[NoQuery, CompleteRequest] | Call[NoQuery, FailRequest],
        token: int,
        outcome: Outcome,
    ) -> Answer:
        run, _ = await self._history.get_run(call.caller, call.run_key)
        settled = await self._decide(call.caller, run, token, outcome, call.now_us)
        if not await self._history.answer(call.caller, settled):
            raise TokenStale
        return await self._answer(call.caller, run.key)

    async def _decide(
        self, caller: Caller, run: Run, token: int, outcome: Outcome, now_us: int
    ) -> Settled:
        """What the report of a worker makes of its run."""
        attempt = run.attempt_in_hand
        if attempt < 1:
            raise TokenStale  # no attempt was made since it was last asked for
        settlement = decide(
            await self._retry_policy(caller, run),
            outcome,
            attempt=attempt,
            now_us=now_us,
            random=self._surroundings.random,
        )
        try:
            state = move_run(run.state, settlement.event)
        except IllegalMove:
            raise TokenStale from None
        ending = Ending(
            state=state,
            started_at_us=_began_us(run, now_us),
            finished_at_us=now_us,
            error=outcome.error if isinstance(outcome, Failed | Rejected) else None,
            retry_at_us=settlement.retry_at_us,
        )
        return Settled(run.key, token, ending)

    async def _retry_policy(self, caller: Caller, run: Run) -> RetryPolicy:
        try:
            return (await self._jobs.get(caller, run.job_id)).retry
        except JobNotFound:
            return RetryPolicy(max_attempts=1)  # of a job that is gone nothing is tried again

    async def _answer(self, caller: Caller, key: RunKey, status: int = 200) -> Answer:
        run, attempts = await self._history.get_run(caller, key)
        return Answer(body=run_answer(run, attempts), status=status)


def _began_us(run: Run, now_us: int) -> int:
    """When the latest attempt began: a run knows it of its first, and of others when armed."""
    known_us = run.started_at_us if run.attempt <= 1 else run.armed_at_us
    return next((us for us in (known_us, run.armed_at_us) if us is not None), now_us)
