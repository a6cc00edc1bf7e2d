"""Schedules: coming times, previews, and why a job did or did not fire.

Invariant: nothing here writes.
"""

from typing import Annotated, Final
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

from wheelsched.api.answers import schedule_of
from wheelsched.api.identities import Identities
from wheelsched.api.inquiry import find_run, inquire
from wheelsched.api.intake import Intake, read_document
from wheelsched.api.operation import Answer, Call, NoQuery, Operation
from wheelsched.api.reading import read_query_us
from wheelsched.api.surroundings import Surroundings
from wheelsched.api.waiting import Waiting
from wheelsched.core.egress import EgressRules
from wheelsched.core.explain import explain
from wheelsched.core.fields import escaped
from wheelsched.core.model import Job
from wheelsched.core.sensitive import hidden_changes, is_sensitive
from wheelsched.core.target import HEADERS_POINTER
from wheelsched.ports import HistoryStore, JobFilter, JobStore
from wheelsched.wire.instant import Instant, instant
from wheelsched.wire.job import JobDocument
from wheelsched.wire.schedule import DueAnswer, ExplainAnswer, NextAnswer, PreviewAnswer
from wheelsched.wire.tenant import Scope

MAX_COUNT: Final = 1_000
PREVIEWED: Final = 10
# How many runs are looked at from the time on, where its own run is, or the one that stands for it
# among others that were skipped; and of the latest ones, where backfills are.
LOOKED_AT: Final = 1_000


class NextQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many."""

    count: Annotated[int, Meta(ge=1, le=MAX_COUNT)] = 10


class ExplainQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When."""

    at: Instant


class Schedules:
    """What is asked of the times of jobs."""

    def __init__(
        self,
        jobs: JobStore,
        history: HistoryStore,
        surroundings: Surroundings,
        rules: EgressRules,
        waiting: Waiting,
    ) -> None:
        self._waiting = waiting
        self._jobs = jobs
        self._history = history
        self._surroundings = surroundings
        self._rules = rules

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/jobs/{job_id}/next",
                summary="The coming due times, in UTC and local",
                scope=Scope.READ,
                handle=self.list_next,
                query=NextQuery,
                answer=NextAnswer,
            ),
            Operation(
                method="GET",
                path="/jobs/{job_id}/explain",
                summary="Why did it, or did it not, fire at a time?",
                scope=Scope.READ,
                handle=self.explain,
                query=ExplainQuery,
                answer=ExplainAnswer,
            ),
            Operation(
                method="POST",
                path="/preview",
                summary="Judge a job and tell its coming times, without registering it",
                scope=Scope.READ,
                handle=self.preview,
                body=bytes,
                described_body=JobDocument,
                answer=PreviewAnswer,
            ),
        )

    async def list_next(self, call: Call[NextQuery, None]) -> Answer:
        job = await self._jobs.get(call.caller, call.job_id)
        return Answer(
            body=NextAnswer(
                job_id=job.job_id,
                timezone=job.spec.timezone,
                items=_coming(job, call.now_us, call.query.count),
            )
        )

    async def explain(self, call: Call[ExplainQuery, None]) -> Answer:
        at_us = read_query_us(call.query.at, "at")
        job = await self._jobs.get(call.caller, call.job_id)
        following = await self._history.list_runs_from(
            call.caller, job.job_id, LOOKED_AT, from_us=at_us
        )
        runs, is_whole = following[::-1], True
        if len(following) == LOOKED_AT:
            latest = await self._history.list_runs(call.caller, job.job_id, LOOKED_AT)
            is_whole = latest[-1].due_us <= following[-1].due_us
            runs = [*latest, *runs]
        run = find_run(runs, at_us)
        reason = None if run is None else await self._waiting.reason(run, job, call.now_us)
        answer = inquire(job, run, (at_us, call.now_us), is_whole=is_whole, waiting_for=reason)
        return Answer(body=answer)

    async def preview(self, call: Call[NoQuery, bytes]) -> Answer:
        job_id = Identities(call.now_us, call.seed, self._surroundings.random).next()
        intake = Intake(call.now_us, self._rules)
        registered = await self._registered(call)
        tenant_id = call.caller.tenant_id
        job = intake.register_written(call.body, job_id, tenant_id, like=registered).job
        explained = explain(job.spec, job_id, now_us=call.now_us, count=PREVIEWED)
        coming = [DueAnswer(utc=due.utc, local=due.local) for due in explained.next_times]
        return Answer(
            body=PreviewAnswer(
                words=explained.words,
                next_times=coming,
                warnings=list(explained.warnings),
                hidden_changes=_hidden_changes(job, registered),
            )
        )

    async def _registered(self, call: Call[NoQuery, bytes]) -> Job | None:
        """The job that a previewed document would change.

        Only for those who may write: others could guess hidden values until one is unchanged.
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
    names = hidden_changes(job.target.headers, registered.target.headers)
    return [f"{HEADERS_POINTER}/{escaped(name)}" for name in names]


def _coming(job: Job, now_us: int, count: int) -> list[DueAnswer]:
    schedule, zone = schedule_of(job), ZoneInfo(job.spec.timezone)
    coming: list[DueAnswer] = []
    due_us = schedule.next_after(now_us)
    while due_us is not None and len(coming) < count:
        due = instant(due_us)
        coming.append(DueAnswer(utc=due, local=due.astimezone(zone)))
        due_us = schedule.next_after(due_us)
    return coming
