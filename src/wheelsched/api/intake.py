"""Documents become jobs: every field is judged, and every mistake is told at once.

Invariant: what is accepted is due at least once, and everything in it is within the bounds of the
core. An intake serves one request: all its documents are read at one time, and what they share,
such as a schedule, is judged once.
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from wheelsched.api.problem_list import ProblemList
from wheelsched.api.targets import judge_target
from wheelsched.core import cron
from wheelsched.core.acceptance import check_jitter
from wheelsched.core.duration import parse_duration
from wheelsched.core.egress import EgressRules
from wheelsched.core.idempotency import check_template
from wheelsched.core.labels import check_name, check_tags
from wheelsched.core.model import DEFAULT_IDEMPOTENCY_KEY, Job, JobState, Target
from wheelsched.core.schedule import Spec, first_due_us, one_off_like, parse
from wheelsched.core.state import JobEvent, move_job
from wheelsched.core.written import Policies, read_policies
from wheelsched.errors import PayloadTooLarge
from wheelsched.ports import Registration
from wheelsched.wire.job import (
    DstDocument,
    JobDocument,
    MisfireDocument,
    OverlapDocument,
    RetryDocument,
)

MAX_PAYLOAD_BYTES: Final = 256 << 10
NO_JITTER: Final = "0s"
_ANY_ID: Final = UUID(int=0)
_PLAIN_DST: Final = DstDocument()

Shape = tuple[object, ...]


class Edit(NamedTuple):
    """A job after an edit; with its next due time, if its schedule is another one."""

    job: Job
    due_us: int | None
    is_rescheduled: bool


class Intake:
    """The documents of one request, read at one time."""

    def __init__(self, now_us: int, rules: EgressRules) -> None:
        self._now_us = now_us
        self._rules = rules
        self._shared: dict[tuple[bytes, Shape], _Shared] = {}
        self._frames: dict[Shape, _Frame] = {}
        self._one_offs: dict[Shape, _Shared] = {}

    def register(self, document: JobDocument, job_id: UUID, tenant_id: UUID) -> Registration:
        """The new job of a document and its first due time, or `InvalidDocument`."""
        problems = ProblemList()
        shared = problems.note(self._share, document)
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
        is_rescheduled = not _is_same_schedule(before, document)
        problems = ProblemList()
        fields = problems.note(
            self._judge,
            document,
            _shape_of_frame(document),
            None if is_rescheduled else before.spec,
        )
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

    def _first_due_us(self, job: Job) -> int:
        return first_due_us(
            job.spec, job.job_id, now_us=self._now_us, grace_us=job.misfire.grace_us
        )

    def _share(self, document: JobDocument) -> "_Shared":
        frame_shape = _shape_of_frame(document)
        shape = bytes(document.schedule), frame_shape
        shared = self._shared.get(shape)
        if shared is not None:
            return shared
        if frame_shape in self._one_offs and (like := self._like(document, frame_shape)):
            return like
        fields = self._judge(document, frame_shape)
        due_us = self._common_due_us(fields["spec"], fields["misfire"].grace_us)
        shared = self._shared[shape] = _Shared(fields, due_us)
        if fields["spec"].kind == "at":
            self._one_offs[frame_shape] = shared
        return shared

    def _like(self, document: JobDocument, frame_shape: Shape) -> "_Shared | None":
        """A one-off that differs from one before by its time alone, as those of one import do."""
        text = msgspec.json.decode(document.schedule)
        fields = self._one_offs[frame_shape].fields
        found = isinstance(text, str) and one_off_like(text, fields["spec"], now_us=self._now_us)
        return _Shared(fields | {"spec": found[0]}, found[1]) if found else None

    def _common_due_us(self, spec: Spec, grace_us: int) -> int | None:
        """The first due time, where all jobs have the same; None where their ids choose it."""
        if spec.kind == "cron" and cron.is_hashed(cron.template(spec.expression)):
            return None
        return first_due_us(spec, _ANY_ID, now_us=self._now_us, grace_us=grace_us)

    def _judge(
        self, document: JobDocument, frame_shape: Shape, spec: Spec | None = None
    ) -> dict[str, Any]:
        """Judge what documents may share; with a spec, the schedule is the one that it was."""
        problems = ProblemList()
        note = problems.note
        frame = note(self._frame_of, document, frame_shape)
        if spec is None:
            spec = note(self._read_spec, document, frame)
        else:
            spec = note(_with_jitter, spec, _given(document.jitter, NO_JITTER))
        idempotency_key = _given(document.idempotency_key, DEFAULT_IDEMPOTENCY_KEY)
        note(_check_key, idempotency_key, spec)
        problems.raise_all()
        policies = frame.policies
        return {
            "spec": spec,
            "target": frame.target,
            "misfire": policies.misfire,
            "overlap": policies.overlap,
            "retry": policies.retry,
            "timeout_us": policies.timeout_us,
            "priority": policies.priority,
            "idempotency_key": idempotency_key,
        }

    def _frame_of(self, document: JobDocument, shape: Shape) -> "_Frame":
        frame = self._frames.get(shape)
        if frame is None:
            frame = self._frames[shape] = self._judge_frame(document)
        return frame

    def _judge_frame(self, document: JobDocument) -> "_Frame":
        problems = ProblemList()
        policies = problems.note(
            judge_policies,
            document.misfire,
            document.overlap,
            document.retry,
            document.timeout,
            document.priority,
        )
        target = problems.note(judge_target, document.target, self._rules)
        problems.raise_all()
        return _Frame(policies, target)

    def _read_spec(self, document: JobDocument, frame: "_Frame | None") -> Spec:
        dst = document.dst or _PLAIN_DST
        return parse(
            msgspec.json.decode(document.schedule),
            timezone=_given(document.timezone, "UTC"),
            dst_gap=dst.gap or "shift",
            dst_overlap=dst.overlap or "first",
            jitter=_given(document.jitter, NO_JITTER),
            now_us=self._now_us,
            grace_us=(Policies() if frame is None else frame.policies).misfire.grace_us,
        )


class _Frame(Struct, frozen=True):
    """What is judged of a document without its schedule: one-offs differ by that alone."""

    policies: Policies
    target: Target


class _Shared(Struct, frozen=True):
    """What documents of one shape have in common."""

    fields: dict[str, Any]
    due_us: int | None


def _shape_of_frame(document: JobDocument) -> Shape:
    """All that is written in a document but its schedule, its name, its payload and its tags."""
    target = document.target
    headers = target.headers
    return (
        document.timezone,
        document.dst,
        document.jitter,
        document.misfire,
        document.overlap,
        document.retry,
        document.timeout,
        document.priority,
        document.idempotency_key,
        target.url,
        target.method,
        target.batch,
        tuple(headers.items()) if headers else None,
    )


def _judge_own(document: JobDocument, problems: ProblemList) -> dict[str, str]:
    """Judge what each document has for itself, and give its tags."""
    problems.note(check_name, document.name)
    problems.note(_check_payload, document.payload)
    return problems.note(check_tags, document.tags) if document.tags else {}


# Schedules differ, and policies seldom do: most tenants have a few, and reading them costs most.
@lru_cache(maxsize=1_024)
def judge_policies(
    misfire: MisfireDocument | None,
    overlap: OverlapDocument | None,
    retry: RetryDocument | None,
    timeout: str | None,
    priority: int | None,
) -> Policies:
    """The policies of a document, or `InvalidDocument`."""
    written = msgspec.to_builtins(
        {
            "misfire": misfire,
            "overlap": overlap,
            "retry": retry,
            "timeout": timeout,
            "priority": priority,
        }
    )
    return read_policies(written)


def _with_jitter(spec: Spec, jitter: str) -> Spec:
    spec = replace(spec, jitter_us=parse_duration(jitter, pointer="/jitter"))
    check_jitter(spec)
    return spec


def _is_same_schedule(job: Job, document: JobDocument) -> bool:
    dst = document.dst or _PLAIN_DST
    return (
        msgspec.json.decode(job.schedule) == msgspec.json.decode(document.schedule)
        and job.spec.timezone == _given(document.timezone, "UTC")
        and job.spec.dst_gap == (dst.gap or "shift")
        and job.spec.dst_overlap == (dst.overlap or "first")
    )


def _given(written: str | None, default: str) -> str:
    """What was written, even when it is nothing: only what is left out has a default."""
    return default if written is None else written


def _check_key(template: str, spec: Spec | None) -> None:
    check_template(template, is_recurring=spec is not None and spec.kind != "at")


def _check_payload(payload: Raw) -> None:
    size = memoryview(payload).nbytes
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"the payload has {size:,} bytes; at most {MAX_PAYLOAD_BYTES:,} are right, "
            "so send a reference to what is larger",
            pointer="/payload",
        )
