"""The documents of jobs that an application writes in Python.

Invariant: a document says the same as one that is sent to the API.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypedDict

import msgspec
from msgspec import Raw, Struct

from wheelsched.errors import InvalidInstant, InvalidPayload, InvalidSchedulerOption, quoted
from wheelsched.values.duration import MICROSECOND, SECOND, format_duration

Schedule: TypeAlias = str | Mapping[str, object]
Period: TypeAlias = str | timedelta

APPLICATION: Final = "application"  # tags that the scheduler sets itself
DECLARED: Final = "declared"
RELEASE: Final = "release"
UNDECLARED: Final = "undeclared"

_DURATIONS: Final = ("timeout", "jitter", "claim_within")
_RESERVED_TAGS: Final = frozenset((APPLICATION, DECLARED, RELEASE, UNDECLARED))


class JobOptions(TypedDict, total=False):
    """The fields of a job that are optional, as in the API."""

    timezone: str
    misfire: Mapping[str, object]
    overlap: Mapping[str, object]
    retry: Mapping[str, object]
    timeout: Period
    jitter: Period
    claim_within: Period
    priority: int
    dst: Mapping[str, str]
    idempotency_key: str
    tags: Mapping[str, str]


class Times(Struct, frozen=True, kw_only=True):
    """When a job runs: exactly one of these."""

    at: datetime | str | None = None
    every: Period | None = None
    cron: str | None = None
    rrule: str | None = None


def read_times(times: Times, *, has_timezone: bool) -> Schedule:
    """The schedule of a job."""
    given = {
        name: value
        for name in Times.__struct_fields__
        if (value := getattr(times, name)) is not None
    }
    if len(given) != 1:
        raise InvalidSchedulerOption("pass exactly one of at, every, cron and rrule")
    ((kind, value),) = given.items()
    if isinstance(value, datetime):
        if value.tzinfo is None and not has_timezone:
            raise InvalidInstant(
                f"{value} has no time zone; use an aware datetime, or pass timezone", pointer="/at"
            )
        return value.isoformat()
    if isinstance(value, timedelta):
        value = _duration(value)
    return {kind: value} if kind != "at" else value


def encode_payload(payload: object) -> Raw:
    """A payload as JSON: whatever msgspec encodes, and pydantic models in it."""
    try:
        return Raw(msgspec.json.encode(payload, enc_hook=_encode_pydantic))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidPayload(f"the payload cannot be encoded as JSON: {error}") from error


def job_document(
    name: str, schedule: Schedule, queue: str, payload: Raw, options: JobOptions
) -> dict[str, Any]:
    """The document of a job for a queue."""
    fields: dict[str, Any] = dict(options)
    unknown = fields.keys() - JobOptions.__annotations__.keys()
    if unknown:
        raise InvalidSchedulerOption(f"unknown option of a job: {', '.join(sorted(unknown))}")
    if reserved := _RESERVED_TAGS.intersection(fields.get("tags", ())):
        raise InvalidSchedulerOption(
            f"the scheduler sets the tag {quoted(min(reserved))} itself; choose another name"
        )
    for each in _DURATIONS:
        if isinstance(fields.get(each), timedelta):
            fields[each] = _duration(fields[each])
    target = {"queue": queue}
    if (claim_within := fields.pop("claim_within", None)) is not None:
        target["claim_within"] = claim_within
    return {"name": name, "schedule": schedule, "target": target, "payload": payload, **fields}


def _duration(value: timedelta) -> str:
    whole = value // timedelta(microseconds=1) * MICROSECOND
    if whole < 0:
        raise InvalidSchedulerOption(f"a duration must not be negative: {whole / SECOND} s")
    return format_duration(whole)


def _encode_pydantic(value: Any) -> object:
    """A pydantic model, which msgspec does not know, as its own validation reads it."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise TypeError(f"type {type(value).__name__} is not supported")
