"""Writes the jobs of an application to the store.

Invariant: a job is validated by the same code as a request to the API.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import SystemRandom
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec

from wheelsched.core.model import Draft, Job, JobState
from wheelsched.core.targets.egress import NO_EXCEPTIONS
from wheelsched.errors import InvalidDocument, InvalidField, JobNameTaken, JobNotFound, quoted
from wheelsched.jobs.job_ids import Identities
from wheelsched.jobs.parse import Edit, JobParser
from wheelsched.ports import Caller, JobFilter, JobStore, Registration

IfExists: TypeAlias = Literal["error", "keep", "replace"]

ATTEMPTS: Final = 10  # to win against others who change the same job


def parse_job(document: dict[str, Any], job_id: UUID, tenant_id: UUID, now_us: int) -> Registration:
    """A new job, or `InvalidDocument`."""
    body = msgspec.json.encode(document)
    with _located():
        return JobParser(now_us, NO_EXCEPTIONS).register_json(body, job_id, tenant_id)


class JobBook:
    """The jobs of a tenant."""

    def __init__(self, jobs: JobStore, caller: Caller, now_us: Callable[[], int]) -> None:
        self.jobs = jobs
        self.caller = caller
        self.now_us = now_us
        self._random = SystemRandom()

    def parse(self, document: dict[str, Any]) -> Registration:
        """A new job, or `InvalidDocument`."""
        now_us = self.now_us()
        job_id = Identities(now_us, None, self._random).next()
        return parse_job(document, job_id, self.caller.tenant_id, now_us)

    def parse_edit(self, before: Job, document: dict[str, Any]) -> Edit:
        """A job after an edit, or `InvalidDocument`."""
        parser = JobParser(self.now_us(), NO_EXCEPTIONS)
        with _located():
            return parser.edit_json(before, msgspec.json.encode(document))

    async def find(self, name: str) -> Job | Draft | None:
        """The unfinished job of a name."""
        for job in await self.jobs.list_jobs(self.caller, JobFilter(name=name), 1):
            return None if job.state is JobState.FINISHED else job
        return None

    async def register(self, document: dict[str, Any]) -> UUID | None:
        """Registers a job; returns None if its name is taken."""
        registration = self.parse(document)
        taken = await self.jobs.register(self.caller, [registration])
        return None if taken else registration.job.job_id

    async def schedule(self, document: dict[str, Any], if_exists: IfExists) -> UUID:
        """Registers a job, and returns its id."""
        for _ in range(ATTEMPTS):
            job_id = await self.register(document)
            if job_id is not None:
                return job_id
            known = await self.find(document["name"])
            if known is None:  # it has ended meanwhile
                continue
            if if_exists == "keep":
                return known.job_id
            if if_exists != "replace":
                break
            with suppress(JobNotFound):
                await self.jobs.delete(self.caller, known.job_id)
        raise JobNameTaken(f"a job named {quoted(document['name'])} already exists")

    async def cancel(self, name: str) -> bool:
        """Deletes a job; returns whether nothing of it is executed any more."""
        known = await self.find(name)
        if known is None:
            return False
        try:
            deleted = await self.jobs.delete(self.caller, known.job_id)
        except JobNotFound:
            return False
        return not deleted.too_late


@contextmanager
def _located() -> Iterator[None]:
    """Raises the error of a single field as that of a document, whose message says where it is."""
    try:
        yield
    except InvalidField as error:
        raise InvalidDocument(errors=(error,)) from error
