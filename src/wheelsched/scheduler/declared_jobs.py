"""Syncs the jobs that are declared in code with the registered ones.

Invariant: only jobs with the tags of this application are changed, and none that an instance of a
later release has declared. A job that an operator has paused stays paused.
"""

from typing import Any, Final, assert_never
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace

from wheelsched.core.model import Draft, Job, JobState
from wheelsched.errors import (
    InvalidDocument,
    JobChanged,
    JobNotFound,
    JobNotPausable,
    ScheduleInPast,
    ScheduleNeverFires,
)
from wheelsched.jobs.describe import document_of, schedule_of
from wheelsched.ports import FIRST_JOB, JobFilter, position_of
from wheelsched.scheduler.config import SchedulerConfig
from wheelsched.scheduler.documents import (
    APPLICATION,
    DECLARED,
    RELEASE,
    UNDECLARED,
    encode_payload,
    job_document,
)
from wheelsched.scheduler.job_book import ATTEMPTS, JobBook, parse_job
from wheelsched.scheduler.tasks import DeclaredJob, Tasks

log = structlog.get_logger("wheelsched.scheduler")

PAGE: Final = 500


def check_declared(tasks: Tasks, declared: DeclaredJob, now_us: int) -> None:
    """Raises `InvalidDocument` or `InvalidSchedulerOption` if a job can never be registered."""
    try:
        parse_job(_document(tasks, declared), UUID(int=0), UUID(int=0), now_us)
    except InvalidDocument as error:
        if not _has_ended(error):
            raise


class DeclaredJobs:
    """The declared jobs of one application."""

    def __init__(self, book: JobBook, tasks: Tasks, config: SchedulerConfig) -> None:
        self._book = book
        self._tasks = tasks
        self._config = config
        self._tags = {APPLICATION: tasks.application, DECLARED: "true"}

    async def sync(self) -> None:
        """Registers and edits what is declared, and handles what is not declared any more."""
        own_tags = {**self._tags, RELEASE: str(self._config.release)}
        for declared in self._tasks.declared.values():
            document = _document(self._tasks, declared)
            await self._upsert({**document, "tags": document["tags"] | own_tags})
        names = set(map(self._tasks.full_name, self._tasks.declared))
        for job in await self._registered():
            if job.name not in names and not self._is_later(job):
                await self._handle_undeclared(job)

    async def _upsert(self, document: dict[str, Any]) -> None:
        name = document["name"]
        for _ in range(ATTEMPTS):
            try:
                if await self._book.register(document) is not None:
                    log.info("job.declared", job=name)
                    return
                known = await self._book.find(name)
                if known is not None and await self._edit(known, document):
                    return
            except InvalidDocument as error:
                if not _has_ended(error):
                    raise
                log.warning("job.ended", job=name, error=str(error))
                return
            except (JobChanged, JobNotFound, JobNotPausable):
                continue  # another instance was faster
        log.warning("job.contended", job=name)

    async def _edit(self, known: Job | Draft, document: dict[str, Any]) -> bool:
        """Makes a registered job the declared one; returns whether it is."""
        book = self._book
        if isinstance(known, Draft):  # written in SQL under a name of this application
            await book.jobs.delete(book.caller, known.job_id)
            return False
        if self._is_later(known):
            return True
        if known.state is JobState.PAUSED and UNDECLARED in known.tags:
            # First, while the tag still says why: an instance that dies here is not the last one.
            due_us = schedule_of(known).next_after(book.now_us())
            await book.jobs.resume(book.caller, known.job_id, due_us, known.version)
            return False
        edit = book.parse_edit(known, document)
        if _content(edit.job) != _content(known):
            acknowledged = await book.jobs.edit(
                book.caller, edit.job, edit.due_us, is_rescheduled=edit.is_rescheduled
            )
            log.info("job.redeclared", job=known.name, version=acknowledged.job.version)
        return True

    def _is_later(self, job: Job | Draft) -> bool:
        """Whether an instance of a later release has declared the job."""
        release = "" if isinstance(job, Draft) else job.tags.get(RELEASE, "")
        return release.isdecimal() and int(release) > self._config.release

    async def _registered(self) -> list[Job]:
        """All unfinished jobs that some instance has declared."""
        found: list[Job] = []
        after, wanted = FIRST_JOB, JobFilter(tags=self._tags)
        while page := await self._book.jobs.list_jobs(self._book.caller, wanted, PAGE, after):
            found += [
                job for job in page if isinstance(job, Job) and job.state is not JobState.FINISHED
            ]
            after = position_of(page[-1])
        return found

    async def _handle_undeclared(self, job: Job) -> None:
        book = self._book
        try:
            match self._config.undeclared:
                case "report":
                    log.warning(
                        "job.undeclared",
                        job=job.name,
                        advice="no handler takes its runs; cancel it, or set `undeclared`",
                    )
                case "pause":
                    await self._pause(job)
                case "delete":
                    await book.jobs.delete(book.caller, job.job_id, job.version)
                    log.info("job.deleted", job=job.name)
                case never:
                    assert_never(never)
        except (JobChanged, JobNotFound):
            log.info("job.contended", job=job.name)

    async def _pause(self, job: Job) -> None:
        """Pauses a job, and notes why, so that it is resumed when it is declared again."""
        if job.state is not JobState.ACTIVE:
            return
        book = self._book
        marked = replace(
            job,
            tags={**job.tags, UNDECLARED: "paused"},
            version=job.version + 1,
            updated_at_us=book.now_us(),
        )
        acknowledged = await book.jobs.edit(book.caller, marked, None, is_rescheduled=False)
        await book.jobs.pause(book.caller, job.job_id, acknowledged.job.version)
        log.info("job.paused", job=job.name)


def _document(tasks: Tasks, declared: DeclaredJob) -> dict[str, Any]:
    document = job_document(
        tasks.full_name(declared.name),
        declared.schedule,
        tasks.queue_of(declared.name),
        encode_payload(None),
        declared.options,
    )
    return {**document, "tags": {**declared.options.get("tags", {})}}


def _content(job: Job) -> object:
    """What a job says, however it is spelled."""
    return msgspec.json.decode(msgspec.json.encode(document_of(job)))


def _has_ended(error: InvalidDocument) -> bool:
    """Whether the only problem of a document is that its last due time has passed."""
    return all(isinstance(each, ScheduleInPast | ScheduleNeverFires) for each in error.errors)
