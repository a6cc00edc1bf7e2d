"""What is asked of a job beside its definition: pause, resume, trigger, backfill.

Invariant: nothing here moves or uses up a due time of the schedule.
"""

from functools import partial
from typing import Any, Final
from uuid import UUID

from msgspec import UNSET
from msgspec.structs import replace

from wheelsched.api.answers import schedule_of
from wheelsched.api.changes import look_and_change
from wheelsched.api.intake import check_payload
from wheelsched.api.jobs import acknowledged_answer, check_version, seen_version
from wheelsched.api.operation import Answer, Call, NoQuery, Operation
from wheelsched.core import request
from wheelsched.core.misfire import Skip
from wheelsched.core.model import Job, Run, Trigger, format_run_id
from wheelsched.core.pause import paused_over
from wheelsched.errors import JobChanged
from wheelsched.ports import Caller, HistoryStore, JobStore, RequestedRun
from wheelsched.wire.instant import read_us
from wheelsched.wire.job import JobAnswer
from wheelsched.wire.jobs import ResumeFrom, ResumeRequest
from wheelsched.wire.run import BackfillRequest, RequestedAnswer, TriggerRequest
from wheelsched.wire.tenant import Scope

LOOKED_AT: Final = 1_000  # runs since a pause began: those that it met armed come first


class JobVerbs:
    """The verbs of a job."""

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
                summary="Stop the schedule; what is in flight goes on",
                scope=Scope.WRITE,
                handle=self.pause,
                answer=JobAnswer,
                is_conditional=True,
            ),
            Operation(
                method="POST",
                path="/jobs/{job_id}/resume",
                summary="Start the schedule again, from now or from where it was paused",
                scope=Scope.WRITE,
                handle=self.resume,
                body=ResumeRequest,
                is_body_optional=True,
                answer=JobAnswer,
                is_conditional=True,
            ),
            Operation(
                method="POST",
                path="/jobs/{job_id}/trigger",
                summary="Run it now, beside its schedule",
                scope=Scope.WRITE,
                handle=self.trigger,
                body=TriggerRequest,
                is_body_optional=True,
                answer=RequestedAnswer,
                status=202,
            ),
            Operation(
                method="POST",
                path="/jobs/{job_id}/backfill",
                summary="Run the due times of a range in the past, or count them",
                scope=Scope.WRITE,
                handle=self.backfill,
                body=BackfillRequest,
                answer=RequestedAnswer,
                status=202,
            ),
        )

    async def pause(self, call: Call[NoQuery, None]) -> Answer:
        return await look_and_change(partial(self._pause, call), JobChanged)

    async def resume(self, call: Call[NoQuery, ResumeRequest]) -> Answer:
        return await look_and_change(partial(self._resume, call), JobChanged)

    async def trigger(self, call: Call[NoQuery, TriggerRequest]) -> Answer:
        payload = None if call.body.payload is UNSET else call.body.payload
        if payload is not None:
            check_payload(payload)
        job = await self._jobs.get(call.caller, call.job_id)
        run = request.trigger(job, call.now_us)
        return await self._request(call, [replace(run, payload=payload)])

    async def backfill(self, call: Call[NoQuery, BackfillRequest]) -> Answer:
        job = await self._jobs.get(call.caller, call.job_id)
        schedule = schedule_of(job)
        since_us = read_us(call.body.since, pointer="/since")
        until_us = read_us(call.body.until, pointer="/until")
        if call.body.preview:
            count = request.count_backfill(schedule, since_us, until_us, call.now_us)
            return Answer(body=RequestedAnswer(count=count, run_ids=[], preview=True))
        runs = request.backfill(job, schedule, since_us, until_us, call.now_us)
        return await self._request(call, runs)

    async def _pause(self, call: Call[NoQuery, None]) -> Answer:
        version = await seen_version(self._jobs, call)
        acknowledged = await self._jobs.pause(call.caller, call.job_id, version)
        return acknowledged_answer(acknowledged, call.now_us)

    async def _resume(self, call: Call[NoQuery, ResumeRequest]) -> Answer:
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
        """What a paused job has missed, and has no row of its own in the history."""
        if job.paused_at_us is None:
            return None
        # A schedule that was written during the pause has missed nothing before.
        paused_at_us = max(job.paused_at_us, job.anchor_us)
        runs = await self._history.list_runs_from(caller, job.job_id, LOOKED_AT, paused_at_us)
        known_us = {run.due_us for run in runs if run.trigger is Trigger.SCHEDULE}
        return paused_over(schedule_of(job), paused_at_us, since_us, known_us)

    async def _request(self, call: Call[Any, Any], runs: list[Run]) -> Answer:
        """Put runs in line. Those of a request with a key may be there from an earlier sending."""
        request_id = None if call.seed is None else UUID(bytes=call.seed[:16])
        wanted = [_requested(run, request_id) for run in runs]
        keys = await self._history.request(call.caller, wanted, self._max_requested)
        run_ids = [format_run_id(key) for key in keys]
        return Answer(body=RequestedAnswer(count=len(run_ids), run_ids=run_ids), status=202)


def _requested(run: Run, request_id: UUID | None) -> RequestedRun:
    return RequestedRun(
        key=run.key,
        trigger=run.trigger,
        backfill_of_us=run.backfill_of_us,
        request_id=request_id,
        payload=run.payload,
    )
