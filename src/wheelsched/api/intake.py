"""Documents become jobs: every field is judged, and every mistake is told at once.

Invariant: what is accepted is due at least once, and everything in it is within the bounds of the
core. An intake serves one request: all its documents are read at one time.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar, cast
from uuid import UUID

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from wheelsched.api.judging import Judging, zone_of
from wheelsched.api.targets import keep_hidden
from wheelsched.core.egress import EgressRules
from wheelsched.core.labels import check_name, check_tags
from wheelsched.core.model import Job, JobState
from wheelsched.core.problem_list import ProblemList
from wheelsched.core.relative import absolute
from wheelsched.core.schedule import first_due_us
from wheelsched.core.state import JobEvent, move_job
from wheelsched.errors import (
    InvalidField,
    InvalidInstant,
    PayloadTooLarge,
    ScheduleInPast,
    ScheduleNeverFires,
)
from wheelsched.ports import Registration
from wheelsched.wire.job import JobDocument
from wheelsched.wire.strict import read_what_fits

MAX_PAYLOAD_BYTES: Final = 256 << 10
# Nearly no document of a bulk has to be decoded once more to know that it is not relative.
_MAYBE_RELATIVE: Final = re.compile(rb'"\s*in\b', re.IGNORECASE)

DOCUMENT: Final = msgspec.json.Decoder(JobDocument)
# In the place of required fields that are missing or of another type, so that the rest is judged.
STAND_INS: Final = {
    "/name": b'"name"',
    "/schedule": b'"2199-12-31T00:00:00Z"',
    "/target": b'{"url":"https://example.org/"}',
    "/target/url": b'"https://example.org/"',
}
# Whether a schedule is due at all depends on them: where they are unusable, nobody can tell.
_DECIDE_WHAT_IS_DUE: Final = ("/timezone", "/dst", "/misfire")


Judged = TypeVar("Judged")


class Edit(NamedTuple):
    """A job after an edit; with its next due time, if its schedule is another one."""

    job: Job
    due_us: int | None
    is_rescheduled: bool


class Intake:
    """The documents of one request, read at one time."""

    def __init__(self, now_us: int, rules: EgressRules) -> None:
        self._now_us = now_us
        self._judging = Judging(now_us, rules)

    def register_written(
        self, body: bytes, job_id: UUID, tenant_id: UUID, like: Job | None = None
    ) -> Registration:
        """As `register`, of JSON; the masks in it stand for values of `like`."""
        return _judge_written(
            body, lambda document: self.register(_unmasked(document, like), job_id, tenant_id)
        )

    def edit_written(self, before: Job, body: bytes) -> Edit:
        """As `edit`, of JSON; the masks in it stand for the values that there were."""
        return _judge_written(body, lambda document: self.edit(before, _unmasked(document, before)))

    def register(self, document: JobDocument, job_id: UUID, tenant_id: UUID) -> Registration:
        """The new job of a document and its first due time, or `InvalidDocument`."""
        document = self._absolute(document)
        problems = ProblemList()
        shared = problems.note(self._judging.share, document)
        tags = _judge_own(document, problems)
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
            **shared.fields,
        )
        due_us = shared.due_us
        return Registration(job, self._first_due_us(job) if due_us is None else due_us)

    def edit(self, before: Job, document: JobDocument) -> Edit:
        """The job that a document makes of another.

        A schedule that stays as it was keeps its due times: an `every` its anchor, a rule its
        first day, whatever else is edited.
        """
        document = self._absolute(document)
        is_rescheduled = not _is_same_schedule(before, document)
        problems = ProblemList()
        spec = None if is_rescheduled else before.spec
        fields = problems.note(self._judging.judge, document, spec)
        tags = _judge_own(document, problems)
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
        """The document with the instant that an `in 5m` means now, which is what is stored."""
        if _MAYBE_RELATIVE.search(document.schedule) is None:
            return document
        try:
            schedule = absolute(msgspec.json.decode(document.schedule), self._now_us)
        except InvalidInstant:  # to be judged, and told with everything else that is wrong
            return document
        return replace(document, schedule=Raw(msgspec.json.encode(schedule)))

    def _first_due_us(self, job: Job) -> int:
        return first_due_us(
            job.spec, job.job_id, now_us=self._now_us, grace_us=job.misfire.grace_us
        )


def read_document(body: bytes) -> tuple[JobDocument | None, list[InvalidField]]:
    """What can be read of a document, and what of it cannot."""
    return read_what_fits(body, DOCUMENT, STAND_INS)


def _judge_written(body: bytes, judge: Callable[[JobDocument], Judged]) -> Judged:
    """Judge a document, and report what cannot be read together with what cannot be meant."""
    document, mismatches = read_document(body)
    if document is not None and not mismatches:
        return judge(document)
    judged = ProblemList()
    if document is not None:
        judged.note(judge, document)
    if any(each.pointer.startswith(_DECIDE_WHAT_IS_DUE) for each in mismatches):
        never = (ScheduleNeverFires, ScheduleInPast)
        judged.found = [each for each in judged.found if not isinstance(each, never)]
    problems = ProblemList([*mismatches, *judged.found])
    problems.raise_as_found()
    raise AssertionError("a document that cannot be read has problems")


def _unmasked(document: JobDocument, like: Job | None) -> JobDocument:
    if like is None or not document.target.headers:
        return document
    return replace(document, target=keep_hidden(document.target, like.target))


def _judge_own(document: JobDocument, problems: ProblemList) -> dict[str, str]:
    """Judge what each document has for itself, and give its tags."""
    problems.note(check_name, document.name)
    problems.note(check_payload, document.payload)
    return problems.note(check_tags, document.tags) if document.tags else {}


def _is_same_schedule(job: Job, document: JobDocument) -> bool:
    zone = job.spec.timezone, job.spec.dst_gap, job.spec.dst_overlap
    is_same_text = msgspec.json.decode(job.schedule) == msgspec.json.decode(document.schedule)
    return is_same_text and zone == zone_of(document)


def check_payload(payload: Raw) -> None:
    """Refuses a payload that is too large to be sent with every attempt."""
    size = memoryview(payload).nbytes
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"the payload has {size:,} bytes; at most {MAX_PAYLOAD_BYTES:,} are right, "
            "so send a reference to what is larger",
            pointer="/payload",
        )
