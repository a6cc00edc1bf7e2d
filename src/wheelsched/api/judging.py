"""What documents of one request have in common, such as a schedule: judged once for all of them.

Invariant: what a document shares with one before it is what it would have been found by itself.

| shared by | what |
|---|---|
| documents that differ by name, payload and tags | everything judged here, and the first due time |
| those that differ by their schedule too | the *frame*: policies and target |
| one-offs in the same frame | all but the time |
"""

from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wheelsched.api.targets import judge_target
from wheelsched.core import cron
from wheelsched.core.acceptance import check_jitter
from wheelsched.core.duration import parse_duration
from wheelsched.core.egress import EgressRules
from wheelsched.core.idempotency import check_template
from wheelsched.core.model import DEFAULT_IDEMPOTENCY_KEY, Target
from wheelsched.core.problem_list import ProblemList
from wheelsched.core.schedule import Spec, first_due_us, one_off_like, parse
from wheelsched.core.written import Policies, read_policies
from wheelsched.wire.job import (
    DstDocument,
    JobDocument,
    MisfireDocument,
    OverlapDocument,
    RetryDocument,
)

NO_JITTER: Final = "0s"
_ANY_ID: Final = UUID(int=0)
_PLAIN_DST: Final = DstDocument()

Shape = tuple[object, ...]


class Shared(Struct, frozen=True):
    """What documents of one shape have in common: fields of their jobs, and the first due time.

    The due time is None where the id of each job chooses it.
    """

    fields: dict[str, Any]
    due_us: int | None


class _Frame(Struct, frozen=True):
    """What is judged of a document without its schedule: one-offs differ by that alone."""

    policies: Policies
    target: Target


class Judging:
    """What was judged of the documents of one request so far."""

    def __init__(self, now_us: int, rules: EgressRules) -> None:
        self._now_us = now_us
        self._rules = rules
        self._shared: dict[tuple[bytes, Shape], Shared] = {}
        self._frames: dict[Shape, _Frame] = {}
        self._one_offs: dict[Shape, Shared] = {}

    def share(self, document: JobDocument) -> Shared:
        """What a document has in common with others, or `InvalidDocument`."""
        frame_shape = _shape_of_frame(document)
        shape = bytes(document.schedule), frame_shape
        shared = self._shared.get(shape)
        if shared is not None:
            return shared
        if frame_shape in self._one_offs and (like := self._like(document, frame_shape)):
            return like
        fields = self._judge(document, frame_shape, None)
        due_us = self._common_due_us(fields["spec"], fields["misfire"].grace_us)
        shared = self._shared[shape] = Shared(fields, due_us)
        if fields["spec"].kind == "at":
            self._one_offs[frame_shape] = shared
        return shared

    def judge(self, document: JobDocument, spec: Spec | None) -> dict[str, Any]:
        """The fields alone; with a spec, its schedule is the one that it was."""
        return self._judge(document, _shape_of_frame(document), spec)

    def _like(self, document: JobDocument, frame_shape: Shape) -> Shared | None:
        """A one-off that differs from one before by its time alone, as those of one import do."""
        text = msgspec.json.decode(document.schedule)
        fields = self._one_offs[frame_shape].fields
        found = isinstance(text, str) and one_off_like(text, fields["spec"], now_us=self._now_us)
        return Shared(fields | {"spec": found[0]}, found[1]) if found else None

    def _common_due_us(self, spec: Spec, grace_us: int) -> int | None:
        """The first due time, where all jobs have the same; None where their ids choose it."""
        if spec.kind == "cron" and cron.is_hashed(cron.template(spec.expression)):
            return None
        return first_due_us(spec, _ANY_ID, now_us=self._now_us, grace_us=grace_us)

    def _judge(
        self, document: JobDocument, frame_shape: Shape, spec: Spec | None
    ) -> dict[str, Any]:
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

    def _frame_of(self, document: JobDocument, shape: Shape) -> _Frame:
        frame = self._frames.get(shape)
        if frame is None:
            frame = self._frames[shape] = self._judge_frame(document)
        return frame

    def _judge_frame(self, document: JobDocument) -> _Frame:
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

    def _read_spec(self, document: JobDocument, frame: _Frame | None) -> Spec:
        timezone, dst_gap, dst_overlap = zone_of(document)
        return parse(
            msgspec.json.decode(document.schedule),
            timezone=timezone,
            dst_gap=dst_gap,
            dst_overlap=dst_overlap,
            jitter=_given(document.jitter, NO_JITTER),
            now_us=self._now_us,
            grace_us=(Policies() if frame is None else frame.policies).misfire.grace_us,
        )


def zone_of(document: JobDocument) -> tuple[str, str, str]:
    """The time zone of a document, and what becomes of times in its gaps and overlaps."""
    dst = document.dst or _PLAIN_DST
    return (
        _given(document.timezone, "UTC"),
        _given(dst.gap, "shift"),
        _given(dst.overlap, "first"),
    )


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


def _given(written: str | None, default: str) -> str:
    """What was written, even when it is nothing: only what is left out has a default."""
    return default if written is None else written


def _check_key(template: str, spec: Spec | None) -> None:
    check_template(template, is_recurring=spec is not None and spec.kind != "at")
