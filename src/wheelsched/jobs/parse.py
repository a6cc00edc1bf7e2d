"""Parses job documents into jobs, and reports all problems of a document at once.

Invariant: an accepted job is due at least once, and every field is within the bounds of the core.
A parser serves one request: all its documents are parsed as of one instant.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar, cast
from uuid import UUID

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from wheelsched.core.model import Job, JobState
from wheelsched.core.state import JobEvent, move_job
from wheelsched.core.targets.egress import EgressRules
from wheelsched.errors import (
    InvalidField,
    InvalidInstant,
    PayloadTooLarge,
    ScheduleInPast,
    ScheduleNeverFires,
)
from wheelsched.jobs.targets import restore_masked
from wheelsched.jobs.validate import JobValidation, zone_of
from wheelsched.ports import Registration
from wheelsched.schedule.parse import first_due_us
from wheelsched.schedule.relative import absolute
from wheelsched.values.labels import check_name, check_tags
from wheelsched.values.problem_list import ProblemList
from wheelsched.wire.job import JobDocument
from wheelsched.wire.strict import read_what_fits

MAX_PAYLOAD_BYTES: Final = 256 << 10
# Saves decoding most schedules of a bulk once more, only to find that they are not relative.
_MAYBE_RELATIVE: Final = re.compile(rb'"\s*in\b', re.IGNORECASE)

DOCUMENT: Final = msgspec.json.Decoder(JobDocument)
# Take the place of required fields that are missing, and of fields that decide what is required and
# have the wrong type, so that the other fields are validated too.
STAND_INS: Final = {
    "/name": b'"name"',
    "/schedule": b'"2199-12-31T00:00:00Z"',
    "/target": b'{"url":"https://example.org/"}',
    "/target/url": b'"https://example.org/"',
    "/target/queue": b'"queue"',
}
# Without them it is unknown whether a schedule is ever due.
_AFFECT_DUE_TIMES: Final = ("/timezone", "/dst", "/misfire")


Parsed = TypeVar("Parsed")


class Edit(NamedTuple):
    """A job after an edit, with its next due time if its schedule changed."""

    job: Job
    due_us: int | None
    is_rescheduled: bool


class JobParser:
    """Parses the documents of one request."""

    def __init__(self, now_us: int, rules: EgressRules) -> None:
        self._now_us = now_us
        self._validation = JobValidation(now_us, rules)

    def register_json(
        self, body: bytes, job_id: UUID, tenant_id: UUID, like: Job | None = None
    ) -> Registration:
        """Like `register`, from JSON; masked headers get their values from the job `like`."""
        return _parse_json(
            body, lambda document: self.register(_unmasked(document, like), job_id, tenant_id)
        )

    def edit_json(self, before: Job, body: bytes) -> Edit:
        """Like `edit`, from JSON; masked headers keep their values."""
        return _parse_json(body, lambda document: self.edit(before, _unmasked(document, before)))

    def register(self, document: JobDocument, job_id: UUID, tenant_id: UUID) -> Registration:
        """The new job of a document and its first due time, or `InvalidDocument`."""
        document = self._absolute(document)
        problems = ProblemList()
        validated = problems.note(self._validation.validate_new, document)
        tags = _validate_own(document, problems)
        problems.raise_all()
        job = Job(
            job_id=job_id,
            tenant_id=tenant_id,
            name=document.name,
            schedule=document.schedule,
            payload=document.payload,
            tags=tags,
            anchor_us=self._now_us,
            created_at_us=self._now_us,
            updated_at_us=self._now_us,
            **validated.fields,
        )
        due_us = validated.due_us
        return Registration(job, self._first_due_us(job) if due_us is None else due_us)

    def edit(self, before: Job, document: JobDocument) -> Edit:
        """The job after an edit, or `InvalidDocument`.

        An unchanged schedule keeps its due times, whatever else is edited: an `every` keeps its
        anchor, a recurrence rule its first day.
        """
        document = self._absolute(document)
        is_rescheduled = not _is_same_schedule(before, document)
        problems = ProblemList()
        spec = None if is_rescheduled else before.spec
        fields = problems.note(self._validation.validate_edited, document, spec)
        tags = _validate_own(document, problems)
        problems.raise_all()
        event = JobEvent.RESCHEDULE if is_rescheduled else JobEvent.EDIT
        job = Job(
            job_id=before.job_id,
            tenant_id=before.tenant_id,
            name=document.name,
            schedule=document.schedule,
            payload=document.payload,
            tags=tags,
            anchor_us=self._now_us if is_rescheduled else before.anchor_us,
            state=cast("JobState", move_job(before.state, event)),
            version=before.version + 1,
            created_at_us=before.created_at_us,
            updated_at_us=self._now_us,
            paused_at_us=before.paused_at_us,
            **fields,
        )
        due_us = self._first_due_us(job) if is_rescheduled else None
        return Edit(job, due_us, is_rescheduled)

    def _absolute(self, document: JobDocument) -> JobDocument:
        """The document with a relative schedule, e.g. `in 5m`, replaced by its instant."""
        if _MAYBE_RELATIVE.search(document.schedule) is None:
            return document
        try:
            schedule = absolute(msgspec.json.decode(document.schedule), self._now_us)
        except InvalidInstant:  # validation reports it, with all other problems
            return document
        return replace(document, schedule=Raw(msgspec.json.encode(schedule)))

    def _first_due_us(self, job: Job) -> int:
        return first_due_us(
            job.spec, job.job_id, now_us=self._now_us, grace_us=job.misfire.grace_us
        )


def read_document(body: bytes) -> tuple[JobDocument | None, list[InvalidField]]:
    """The fields of a document that can be read, and a problem for each that cannot."""
    return read_what_fits(body, DOCUMENT, STAND_INS)


def _parse_json(body: bytes, parse: Callable[[JobDocument], Parsed]) -> Parsed:
    """Parse a document, and report fields of the wrong type together with invalid values."""
    document, mismatches = read_document(body)
    if document is not None and not mismatches:
        return parse(document)
    invalid = ProblemList()
    if document is not None:
        invalid.note(parse, document)
    if any(each.pointer.startswith(_AFFECT_DUE_TIMES) for each in mismatches):
        uncertain = (ScheduleNeverFires, ScheduleInPast)
        invalid.found = [each for each in invalid.found if not isinstance(each, uncertain)]
    problems = ProblemList([*mismatches, *invalid.found])
    problems.raise_single_or_all()
    raise AssertionError("a document that cannot be read has problems")


def _unmasked(document: JobDocument, like: Job | None) -> JobDocument:
    if like is None or not document.target.headers:
        return document
    return replace(document, target=restore_masked(document.target, like.target))


def _validate_own(document: JobDocument, problems: ProblemList) -> dict[str, str]:
    """Validate the fields that documents rarely share, and return the tags."""
    problems.note(check_name, document.name)
    problems.note(check_payload, document.payload)
    return problems.note(check_tags, document.tags) if document.tags else {}


def _is_same_schedule(job: Job, document: JobDocument) -> bool:
    zone = job.spec.timezone, job.spec.dst_gap, job.spec.dst_overlap
    is_same_text = msgspec.json.decode(job.schedule) == msgspec.json.decode(document.schedule)
    return is_same_text and zone == zone_of(document)


def check_payload(payload: Raw) -> None:
    """Refuse a payload that is too large to be sent with every attempt."""
    size = memoryview(payload).nbytes
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"the payload has {size:,} bytes; the maximum is {MAX_PAYLOAD_BYTES:,}; "
            "store larger data elsewhere and send a reference to it",
            pointer="/payload",
        )
