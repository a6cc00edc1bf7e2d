"""Typed dictionaries for job documents.

Invariant: these are the fields of `wire.job`; fields with a default may be omitted. The API
validates the values.
"""

from typing import Any, Required, TypeAlias, TypedDict


class TargetFields(TypedDict, total=False):
    """A `url` that is called, or a `queue` from which workers take the runs."""

    url: str
    method: str
    headers: dict[str, str]
    batch: int
    queue: str
    claim_within: str


class MisfireFields(TypedDict, total=False):
    policy: str
    grace: str
    window: str
    max_missed: int


class OverlapFields(TypedDict, total=False):
    policy: str
    max_concurrent: int


class RetryFields(TypedDict, total=False):
    max_attempts: int
    backoff: str
    initial: str
    max: str


class DstFields(TypedDict, total=False):
    gap: str
    overlap: str


class ScheduleFields(TypedDict, total=False):
    cron: str
    at: str
    every: str
    rrule: str
    start: str
    end: str
    exclude: list[str]


Schedule: TypeAlias = str | ScheduleFields


class OptionalFields(TypedDict, total=False):
    """The fields of a job that have a default."""

    timezone: str
    payload: Any
    misfire: MisfireFields
    overlap: OverlapFields
    retry: RetryFields
    timeout: str
    jitter: str
    priority: int
    dst: DstFields
    idempotency_key: str
    tags: dict[str, str]


class JobFields(OptionalFields, total=False):
    """A job to register."""

    name: Required[str]
    schedule: Required[Schedule]
    target: Required[TargetFields]


class JobChanges(TypedDict, total=False):
    """Changes to a job; None resets a field to its default.

    Objects are merged field by field; a schedule and a payload are replaced as a whole.
    """

    name: str
    schedule: Schedule
    target: dict[str, Any]
    timezone: str | None
    payload: Any
    misfire: MisfireFields | None
    overlap: OverlapFields | None
    retry: RetryFields | None
    timeout: str | None
    jitter: str | None
    priority: int | None
    dst: DstFields | None
    idempotency_key: str | None
    tags: dict[str, str | None] | None
