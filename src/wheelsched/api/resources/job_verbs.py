"""Actions on a job: pause, resume, trigger, backfill.

Invariant: none of them moves or uses up a due time of the schedule.
"""

from functools import partial
from typing import Any, Final
from uuid import UUID

from msgspec import UNSET
from msgspec.structs import replace

from wheelsched.api.http.operation import ApiResponse, Call, NoQuery, Operation
from wheelsched.api.resources.jobs import acknowledged_answer, check_version, matched_version
from wheelsched.api.resources.optimistic_retry import retry_on_conflict
from wheelsched.core import request
from wheelsched.core.model import Job, Run, Trigger, format_run_id
from wheelsched.core.policies.misfire import Skip
from wheelsched.core.policies.pause import paused_over
from wheelsched.errors import JobChanged
from wheelsched.jobs.describe import schedule_of
from wheelsched.jobs.parse import check_payload
from wheelsched.ports import Caller, HistoryStore, JobStore, RequestedRun
from wheelsched.wire.instant import read_us
from wheelsched.wire.job import JobAnswer
from wheelsched.wire.jobs import ResumeFrom, ResumeRequest
from wheelsched.wire.run import BackfillRequest, RequestedAnswer, TriggerRequest
from wheelsched.wire.tenant import Scope

MAX_RUNS_SEARCHED: Final = 1_000  # runs since the pause; those already armed come first


class JobVerbs:
    """Actions on a job."""

    def __init__(
        self, jobs: JobStore, history: HistoryStore, max_requested: int = request.MAX_REQUESTED
    ) -> None:
        self._jobs = jobs
        self._history = history
        self._max_requested = max_requested

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/jobs/{job_id}/pause",
                summary="Pause the schedule; runs in flight continue",
                scope=Scope.WRITE,
                handle=self.pause,
                response=JobAnswer,
                is_conditional=True,
            ),
            Operation(
                method="POST",
                path="/jobs/{job_id}/resume",
                summary="Resume the schedule, from now or from the time it was paused",
                scope=Scope.WRITE,
                handle=self.resume,
                body=ResumeRequest,
                is_body_optional=True,
                response=JobAnswer,
                is_conditional=True,
            ),
            Operation(
                method="POST",
                path="/jobs/{job_id}/trigger",
                summary="Run the job now, in addition to its schedule",
                scope=Scope.WRITE,
                handle=self.trigger,
                body=TriggerRequest,
                is_body_optional=True,
                response=RequestedAnswer,
                status=202,
            ),
            Operation(
                method="POST",
                path="/jobs/{job_id}/backfill",
                summary="Run the due times of a past range, or count them",
                scope=Scope.WRITE,
                handle=self.backfill,
                body=BackfillRequest,
                response=RequestedAnswer,
                status=202,
            ),
        )

    async def pause(self, call: Call[NoQuery, None]) -> ApiResponse:
        return await retry_on_conflict(partial(self._pause, call), JobChanged)

    async def resume(self, call: Call[NoQuery, ResumeRequest]) -> ApiResponse:
        return await retry_on_conflict(partial(self._resume, call), JobChanged)

    async def trigger(self, call: Call[NoQuery, TriggerRequest]) -> ApiResponse:
        payload = None if call.body.payload is UNSET else call.body.payload
        if payload is not None:
            check_payload(payload)
        job = await self._jobs.get(call.caller, call.job_id)
        run = request.trigger(job, call.now_us)
        return await self._request(call, [replace(run, payload=payload)])

    async def backfill(self, call: Call[NoQuery, BackfillRequest]) -> ApiResponse:
        job = await self._jobs.get(call.caller, call.job_id)
        schedule = schedule_of(job)
        since_us = read_us(call.body.since, pointer="/since")
        until_us = read_us(call.body.until, pointer="/until")
        if call.body.preview:
            count = request.count_backfill(schedule, since_us, until_us, call.now_us)
            return ApiResponse(body=RequestedAnswer(count=count, run_ids=[], preview=True))
        runs = request.backfill(job, schedule, since_us, until_us, call.now_us)
        return await self._request(call, runs)

    async def _pause(self, call: Call[NoQuery, None]) -> ApiResponse:
        version = await matched_version(self._jobs, call)
        acknowledged = await self._jobs.pause(call.caller, call.job_id, version)
        return acknowledged_answer(acknowledged, call.now_us)

    async def _resume(self, call: Call[NoQuery, ResumeRequest]) -> ApiResponse:
        job = await self._jobs.get(call.caller, call.job_id)
        check_version(job, call.if_match)
        since_us = call.now_us
        if call.body.start is ResumeFrom.PAUSED_AT and job.paused_at_us is not None:
            since_us = job.paused_at_us
        due_us = schedule_of(job).next_after(since_us)
        skip = await self._paused_over(call.caller, job, since_us)
        acknowledged = await self._jobs.resume(call.caller, call.job_id, due_us, job.version, skip)
        return acknowledged_answer(acknowledged, call.now_us)

    async def _paused_over(self, caller: Caller, job: Job, since_us: int) -> Skip | None:
        """The due times that the job missed while paused and that have no record in the history."""
        if job.paused_at_us is None:
            return None
        # A schedule that was changed during the pause missed nothing before that.
        paused_at_us = max(job.paused_at_us, job.anchor_us)
        runs = await self._history.list_runs_from(
            caller, job.job_id, MAX_RUNS_SEARCHED, paused_at_us
        )
        known_us = {run.due_us for run in runs if run.trigger is Trigger.SCHEDULE}
        return paused_over(schedule_of(job), paused_at_us, since_us, known_us)

    async def _request(self, call: Call[Any, Any], runs: list[Run]) -> ApiResponse:
        """Adds runs. With a key, some may already exist from an earlier copy of the request."""
        request_id = None if call.seed is None else UUID(bytes=call.seed[:16])
        wanted = [_requested(run, request_id) for run in runs]
        keys = await self._history.request(call.caller, wanted, self._max_requested)
        run_ids = [format_run_id(key) for key in keys]
        return ApiResponse(body=RequestedAnswer(count=len(run_ids), run_ids=run_ids), status=202)


def _requested(run: Run, request_id: UUID | None) -> RequestedRun:
    return RequestedRun(
        key=run.key,
        trigger=run.trigger,
        backfill_of_us=run.backfill_of_us,
        request_id=request_id,
        payload=run.payload,
    )
