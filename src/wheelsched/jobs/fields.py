"""The fields of a job document, in one table: how each is described, defaulted and normalised.

Invariant: the table has the fields of `JobDocument`, no more and no fewer. Code that handles a job
document field by field uses this table, or derives its fields from `JobDocument`.

To add a field, add it to `JobDocument`, `JobAnswer`, `Job` and this table, and let
`tests/unit/jobs/test_fields.py` show the other places: validation, the command line, the client.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Final, get_args

from msgspec import Raw, Struct
from msgspec.structs import fields

from wheelsched.core.model import DEFAULT_IDEMPOTENCY_KEY, Job
from wheelsched.core.policies.policy import DEFAULT_TIMEOUT_US
from wheelsched.jobs.policies import (
    describe_duration,
    describe_misfire,
    describe_overlap,
    describe_retry,
    normalize_policy,
)
from wheelsched.jobs.targets import describe_target, normalize_target
from wheelsched.schedule.spec import DstGap, DstOverlap, Spec
from wheelsched.values.duration import parse_duration
from wheelsched.values.problem_list import ProblemList
from wheelsched.wire.job import (
    DstDocument,
    JobDocument,
    MisfireDocument,
    OverlapDocument,
    RetryDocument,
    TargetDocument,
)

_DEFAULT_SPEC: Final = Spec(kind="at", expression="")


class JobField(Struct, frozen=True):
    """How one field of a document is handled."""

    describe: Callable[[Job], Any]  # a job's value, with every default written out
    default: Any = None  # of a field that is left out; None if it is required
    normalize: Callable[[Any], Any] = lambda value: value  # inner defaults, and one spelling


@lru_cache
def _describe_dst(gap: DstGap, overlap: DstOverlap) -> DstDocument:
    return DstDocument(gap=gap, overlap=overlap)


def dst_rules(dst: DstDocument) -> tuple[str, str]:
    """The rules for times in DST gaps and in overlaps, with their defaults."""
    return (
        _DEFAULT_SPEC.dst_gap if dst.gap is None else dst.gap,
        _DEFAULT_SPEC.dst_overlap if dst.overlap is None else dst.overlap,
    )


def _normalize_dst(dst: DstDocument) -> DstDocument:
    gap, overlap = dst_rules(dst)
    return DstDocument(gap=gap, overlap=overlap)


def _normalize_jitter(jitter: str) -> str:
    return describe_duration(parse_duration(jitter, pointer="/jitter"))


FIELDS: Final[dict[str, JobField]] = {
    "name": JobField(attrgetter("name")),
    "schedule": JobField(attrgetter("schedule")),
    "target": JobField(lambda job: describe_target(job.target), normalize=normalize_target),
    "timezone": JobField(attrgetter("spec.timezone"), default=_DEFAULT_SPEC.timezone),
    "payload": JobField(attrgetter("payload"), default=Raw(b"null")),
    "misfire": JobField(
        lambda job: describe_misfire(job.misfire),
        default=MisfireDocument(),
        normalize=partial(normalize_policy, "misfire"),
    ),
    "overlap": JobField(
        lambda job: describe_overlap(job.overlap),
        default=OverlapDocument(),
        normalize=partial(normalize_policy, "overlap"),
    ),
    "retry": JobField(
        lambda job: describe_retry(job.retry),
        default=RetryDocument(),
        normalize=partial(normalize_policy, "retry"),
    ),
    "timeout": JobField(
        lambda job: describe_duration(job.timeout_us),
        default=describe_duration(DEFAULT_TIMEOUT_US),
        normalize=partial(normalize_policy, "timeout"),
    ),
    "jitter": JobField(
        lambda job: describe_duration(job.spec.jitter_us),
        default=describe_duration(_DEFAULT_SPEC.jitter_us),
        normalize=_normalize_jitter,
    ),
    "priority": JobField(
        attrgetter("priority"), default=0, normalize=partial(normalize_policy, "priority")
    ),
    "dst": JobField(
        lambda job: _describe_dst(job.spec.dst_gap, job.spec.dst_overlap),
        default=DstDocument(),
        normalize=_normalize_dst,
    ),
    "idempotency_key": JobField(attrgetter("idempotency_key"), default=DEFAULT_IDEMPOTENCY_KEY),
    "tags": JobField(attrgetter("tags"), default={}),
}

# JSON that belongs to the user: a patch replaces it as a whole, byte for byte. A null inside a
# payload is kept, and merging two kinds of schedule would give neither.
OPAQUE_FIELDS: Final = frozenset(
    each.name for each in fields(JobDocument) if get_args(each.type)[0] is Raw
)
# What distinguishes the jobs of one import, even where everything else in them is the same.
OWN_FIELDS: Final = frozenset({"name", "schedule", "payload", "tags"})


def field_of(document: JobDocument, name: str) -> Any:
    """The value of a field, or its default. An empty text is a value."""
    value = getattr(document, name)
    return FIELDS[name].default if value is None else value


def normalize_document(document: JobDocument) -> JobDocument:
    """The document with every default written out and one spelling per duration.

    Two documents that make the same job are equal then. Raises `InvalidDocument`.
    """
    problems = ProblemList()
    values = {
        name: problems.note(field.normalize, field_of(document, name))
        for name, field in FIELDS.items()
    }
    problems.raise_all()
    return JobDocument(**values)


def _shared_paths() -> tuple[str, ...]:
    """The paths of all hashable values of a document, except those of its own fields."""
    top = [each.name for each in fields(JobDocument) if each.name not in OWN_FIELDS | {"target"}]
    target = [each.name for each in fields(TargetDocument) if each.name != "headers"]
    return (*top, *(f"target.{name}" for name in target))


_shared_values: Final = attrgetter(*_shared_paths())


def shared_key(document: JobDocument) -> tuple[object, ...]:
    """A key that is equal for documents that differ only in `OWN_FIELDS`."""
    headers = document.target.headers
    return _shared_values(document), tuple(headers.items()) if headers else None
