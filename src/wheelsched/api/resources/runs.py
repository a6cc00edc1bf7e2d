"""Runs: history, cancelling, retrying, and reports of workers.

Invariant: a report is accepted only with the fencing token of the latest attempt; a stale one gets
409 and is recorded in the history.
"""

from msgspec.structs import replace

from wheelsched.api.environment import Environment
from wheelsched.api.http.cursors import Cursors
from wheelsched.api.http.operation import ApiResponse, Call, NoQuery, Operation
from wheelsched.api.http.pages import PageQuery, split_page
from wheelsched.api.resources.run_answers import run_answer
from wheelsched.api.resources.waiting import Waiting, is_overdue
from wheelsched.core.model import Run, RunKey, RunState, format_run_id
from wheelsched.core.outcome import Failed, Outcome, Rejected, Succeeded, reported
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.core.policies.settlement import decide
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
    """Operations on runs."""

    def __init__(
        self,
        jobs: JobStore,
        history: HistoryStore,
        environment: Environment,
        waiting: Waiting,
    ) -> None:
        self._jobs = jobs
        self._history = history
        self._environment = environment
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
                response=RunPage,
            ),
            Operation(
                method="GET",
                path="/runs/{run_id}",
                summary="Get a run with all its attempts",
                scope=Scope.READ,
                handle=self.read,
                response=RunAnswer,
            ),
            Operation(
                method="POST",
                path="/runs/{run_id}/cancel",
                summary="Cancel a live run",
                scope=Scope.WRITE,
                handle=self.cancel,
                response=CancelAnswer,
            ),
            Operation(
                method="POST",
                path="/runs/{run_id}/retry",
                summary="Retry a dead or cancelled run",
                scope=Scope.WRITE,
                handle=self.retry,
                response=RunAnswer,
                status=202,
            ),
            Operation(
                method="POST",
                path="/runs/{run_id}/heartbeat",
                summary="Report that the worker is still processing the run",
                scope=Scope.WORK,
                other_scopes=(Scope.WRITE,),
                handle=self.heartbeat,
                body=HeartbeatRequest,
                response=None,
                status=204,
            ),
            Operation(
                method="POST",
                path="/runs/{run_id}/complete",
                summary="Report that the run succeeded",
                scope=Scope.WORK,
                other_scopes=(Scope.WRITE,),
                handle=self.complete,
                body=CompleteRequest,
                response=RunAnswer,
            ),
            Operation(
                method="POST",
                path="/runs/{run_id}/fail",
                summary="Report that the run failed",
                scope=Scope.WORK,
                other_scopes=(Scope.WRITE,),
                handle=self.fail,
                body=FailRequest,
                response=RunAnswer,
            ),
        )

    async def list_runs(self, call: Call[PageQuery, None]) -> ApiResponse:
        job_id, query = call.job_id, call.query
        cursors = Cursors(call.caller.tenant_id, f"runs of {job_id}")
        before_us = None if query.cursor is None else cursors.read(query.cursor, int)
        found = await self._history.list_runs(call.caller, job_id, query.limit + 1, before_us)
        if not found:
            await self._jobs.read(call.caller, job_id)  # raises JobNotFound
        page, last = split_page(found, query.limit)
        return ApiResponse(
            body=RunPage(
                items=[run_answer(run) for run in page],
                next_cursor=None if last is None else cursors.write(last.due_us),
            )
        )

    async def read(self, call: Call[NoQuery, None]) -> ApiResponse:
        run, attempts = await self._history.get_run(call.caller, call.run_key)
        names = await self._jobs.read_names(call.caller, [run.job_id])
        reason = await self._reason(call, run) if is_overdue(run, call.now_us) else None
        answer = replace(
            run_answer(run, attempts), job_name=names.get(run.job_id), waiting_for=reason
        )
        return ApiResponse(body=answer)

    async def _reason(self, call: Call[NoQuery, None], run: Run) -> str | None:
        try:
            job = await self._jobs.get(call.caller, run.job_id)
        except JobNotFound:
            return None
        return await self._waiting.reason(run, job, call.now_us)

    async def cancel(self, call: Call[NoQuery, None]) -> ApiResponse:
        in_time = await self._history.cancel(call.caller, call.run_key)
        return ApiResponse(body=CancelAnswer(run_id=format_run_id(call.run_key), in_time=in_time))

    async def retry(self, call: Call[NoQuery, None]) -> ApiResponse:
        ended_by_us = call.now_us if call.is_copy else None
        if await self._history.retry(call.caller, [call.run_key], ended_by_us=ended_by_us):
            run, _ = await self._history.get_run(call.caller, call.run_key)
            if call.is_copy and (run.finished_at_us is None or run.finished_at_us > call.now_us):
                # An earlier copy has retried it, and it may have ended again since.
                return await self._answer(call.caller, call.run_key, status=202)
            if run.state in (RunState.DEAD, RunState.CANCELLED):
                raise RunNotLive("the run cannot be retried because its job was deleted")
            raise RunNotLive(f"a run in state {run.state} cannot be retried")
        return await self._answer(call.caller, call.run_key, status=202)

    async def heartbeat(self, call: Call[NoQuery, HeartbeatRequest]) -> ApiResponse:
        if not await self._history.heartbeat(call.caller, call.run_key, call.body.token):
            await self._history.get_run(call.caller, call.run_key)  # raises RunNotFound
            raise TokenStale
        return ApiResponse(status=204)

    async def complete(self, call: Call[NoQuery, CompleteRequest]) -> ApiResponse:
        return await self._settle(call, call.body.token, Succeeded())

    async def fail(self, call: Call[NoQuery, FailRequest]) -> ApiResponse:
        outcome = reported(ok=False, error=call.body.error, retry=call.body.retry)
        return await self._settle(call, call.body.token, outcome)

    async def _settle(
        self,
        call: Call[NoQuery, CompleteRequest] | Call[NoQuery, FailRequest],
        token: int,
        outcome: Outcome,
    ) -> ApiResponse:
        run, _ = await self._history.get_run(call.caller, call.run_key)
        settled = await self._decide(call.caller, run, token, outcome, call.now_us)
        if not await self._history.answer(call.caller, settled):
            raise TokenStale
        return await self._answer(call.caller, run.key)

    async def _decide(
        self, caller: Caller, run: Run, token: int, outcome: Outcome, now_us: int
    ) -> Settled:
        """The outcome of a run, given the worker's report."""
        attempt = run.attempt_in_hand
        if attempt < 1:
            raise TokenStale  # no attempt has been made since it was requested
        settlement = decide(
            await self._retry_policy(caller, run),
            outcome,
            attempt=attempt,
            now_us=now_us,
            random=self._environment.random,
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
            return RetryPolicy(max_attempts=1)  # runs of a deleted job are not retried

    async def _answer(self, caller: Caller, key: RunKey, status: int = 200) -> ApiResponse:
        run, attempts = await self._history.get_run(caller, key)
        return ApiResponse(body=run_answer(run, attempts), status=status)


def _began_us(run: Run, now_us: int) -> int:
    """When the latest attempt began; for a later attempt than the first, when it was armed."""
    known_us = run.started_at_us if run.attempt <= 1 else run.armed_at_us
    return next((us for us in (known_us, run.armed_at_us) if us is not None), now_us)
