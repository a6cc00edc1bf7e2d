"""Jobs as a program writes them: plain dictionaries, checked by the type checker.

Invariant: these are the fields of `wire.job`, of which each may be left away that has a default.
What the values must look like is for the API to judge, which points at what is wrong.
"""

from typing import Any, Required, TypeAlias, TypedDict


class TargetFields(TypedDict, total=False):
    url: Required[str]
    method: str
    headers: dict[str, str]
    batch: int


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
    """What of a job is to be another; None gives a field its default back.

    Of an object only what is named changes; a schedule and a payload are replaced whole.
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
