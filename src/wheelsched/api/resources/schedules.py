"""Schedules: next due times, previews, and explanations.

Invariant: nothing here writes.
"""

from typing import Annotated, Final
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

from wheelsched.api.environment import Environment
from wheelsched.api.http.operation import ApiResponse, Call, NoQuery, Operation
from wheelsched.api.http.reading import read_query_us
from wheelsched.api.resources.explain_run import explain_run, find_run
from wheelsched.api.resources.waiting import Waiting
from wheelsched.core.model import Job
from wheelsched.core.targets.egress import EgressRules
from wheelsched.core.targets.sensitive import hidden_changes, is_sensitive
from wheelsched.core.targets.target import HEADERS_POINTER
from wheelsched.jobs.describe import schedule_of
from wheelsched.jobs.job_ids import Identities
from wheelsched.jobs.parse import JobParser, read_document
from wheelsched.jobs.targets import headers_of
from wheelsched.ports import HistoryStore, JobFilter, JobStore
from wheelsched.schedule.explain import explain
from wheelsched.values.fields import escape_pointer
from wheelsched.wire.instant import Instant, instant
from wheelsched.wire.job import JobDocument
from wheelsched.wire.schedule import DueAnswer, ExplainAnswer, NextAnswer, PreviewAnswer
from wheelsched.wire.tenant import Scope

MAX_COUNT: Final = 1_000
PREVIEWED: Final = 10
# Runs searched from the time to explain on, which include its own run or the skipped run that
# covers it; and again among the latest ones, which include backfills.
MAX_RUNS_SEARCHED: Final = 1_000


class NextQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many due times."""

    count: Annotated[int, Meta(ge=1, le=MAX_COUNT)] = 10


class ExplainQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The time to explain."""

    at: Instant


class Schedules:
    """Operations on due times."""

    def __init__(
        self,
        jobs: JobStore,
        history: HistoryStore,
        environment: Environment,
        rules: EgressRules,
        waiting: Waiting,
    ) -> None:
        self._waiting = waiting
        self._jobs = jobs
        self._history = history
        self._environment = environment
        self._rules = rules

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/jobs/{job_id}/next",
                summary="List the next due times, in UTC and local time",
                scope=Scope.READ,
                handle=self.list_next,
                query=NextQuery,
                response=NextAnswer,
            ),
            Operation(
                method="GET",
                path="/jobs/{job_id}/explain",
                summary="Explain why the job did or did not fire at a given time",
                scope=Scope.READ,
                handle=self.explain,
                query=ExplainQuery,
                response=ExplainAnswer,
            ),
            Operation(
                method="POST",
                path="/preview",
                summary="Validate a job and list its next due times, without registering it",
                scope=Scope.READ,
                handle=self.preview,
                body=bytes,
                described_body=JobDocument,
                response=PreviewAnswer,
            ),
        )

    async def list_next(self, call: Call[NextQuery, None]) -> ApiResponse:
        job = await self._jobs.get(call.caller, call.job_id)
        return ApiResponse(
            body=NextAnswer(
                job_id=job.job_id,
                timezone=job.spec.timezone,
                items=_coming(job, call.now_us, call.query.count),
            )
        )

    async def explain(self, call: Call[ExplainQuery, None]) -> ApiResponse:
        at_us = read_query_us(call.query.at, "at")
        job = await self._jobs.get(call.caller, call.job_id)
        following = await self._history.list_runs_from(
            call.caller, job.job_id, MAX_RUNS_SEARCHED, from_us=at_us
        )
        runs, is_complete = following[::-1], True
        if len(following) == MAX_RUNS_SEARCHED:
            latest = await self._history.list_runs(call.caller, job.job_id, MAX_RUNS_SEARCHED)
            is_complete = latest[-1].due_us <= following[-1].due_us
            runs = [*latest, *runs]
        run = find_run(runs, at_us)
        reason = None if run is None else await self._waiting.reason(run, job, call.now_us)
        answer = explain_run(
            job, run, (at_us, call.now_us), is_complete=is_complete, waiting_for=reason
        )
        return ApiResponse(body=answer)

    async def preview(self, call: Call[NoQuery, bytes]) -> ApiResponse:
        job_id = Identities(call.now_us, call.seed, self._environment.random).next()
        parser = JobParser(call.now_us, self._rules)
        registered = await self._registered(call)
        tenant_id = call.caller.tenant_id
        job = parser.register_json(call.body, job_id, tenant_id, like=registered).job
        explained = explain(job.spec, job_id, now_us=call.now_us, count=PREVIEWED)
        coming = [DueAnswer(utc=due.utc, local=due.local) for due in explained.next_times]
        return ApiResponse(
            body=PreviewAnswer(
                words=explained.words,
                next_times=coming,
                warnings=list(explained.warnings),
                hidden_changes=_hidden_changes(job, registered),
            )
        )

    async def _registered(self, call: Call[NoQuery, bytes]) -> Job | None:
        """The registered job that a previewed document would change.

        Only for callers with the scope `write`: others could guess a hidden value by trial and
        error.
        """
        document, _ = read_document(call.body)
        if document is None or Scope.WRITE not in call.scopes:
            return None
        if not any(map(is_sensitive, document.target.headers or {})):
            return None
        found = await self._jobs.list_jobs(call.caller, JobFilter(name=document.name), 1)
        return found[0] if found and isinstance(found[0], Job) else None


def _hidden_changes(job: Job, registered: Job | None) -> list[str] | None:
    if registered is None:
        return None
    names = hidden_changes(headers_of(job.target), headers_of(registered.target))
    return [f"{HEADERS_POINTER}/{escape_pointer(name)}" for name in names]


def _coming(job: Job, now_us: int, count: int) -> list[DueAnswer]:
    schedule, zone = schedule_of(job), ZoneInfo(job.spec.timezone)
    coming: list[DueAnswer] = []
    due_us = schedule.next_after(now_us)
    while due_us is not None and len(coming) < count:
        due = instant(due_us)
        coming.append(DueAnswer(utc=due, local=due.astimezone(zone)))
        due_us = schedule.next_after(due_us)
    return coming
