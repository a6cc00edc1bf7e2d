"""Checks the idempotency key template of a job, and renders the key of each run.

Invariant: the key of a run depends only on the job's id, its time zone and the run's scheduled
time, so every attempt carries the same key. An accepted template never renders a key that is not a
valid header value.

| placeholder             | renders as                     | in            |
|-------------------------|--------------------------------|---------------|
| `{{job_id}}`            | `018f3c2e-7a9b-7c3d-8e4f-…`    |               |
| `{{scheduled_at}}`      | `2026-11-16T14:00:00Z`         | UTC           |
| `{{scheduled_at_unix}}` | `1794837600`                   | UTC           |
| `{{date}}`              | `2026-11-16`                   | the job's zone|
| `{{week}}`              | `2026-W47`, the ISO week       | the job's zone|
| `{{month}}`             | `2026-11`                      | the job's zone|
| `{{hour}}`              | `2026-11-16T09-0500`           | the job's zone|

Each placeholder is complete: `{{hour}}` includes its day, and also its offset, because the same
hour occurs twice when clocks go back. A scheduled time with a fraction of a second includes its
microseconds, `1794837600_250000`. So the default template gives every run a different key.

A coarse template is allowed: `{{job_id}}:{{date}}` on an hourly job means one effect per day, and a
manual run on that day shares the key. A template without any time would let a recurring job take
effect only once. It is refused, except for a one-off.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from wheelsched.errors import InvalidIdempotencyKey, quoted
from wheelsched.values.duration import SECOND

MAX_LENGTH: Final = 255  # of the template and of every rendered key

POINTER: Final = "/idempotency_key"

_PLACEHOLDER: Final = re.compile(r"\{\{ *([^{}]*?) *\}\}")

# Printable ASCII without the space, because header values are trimmed. `_check_literal` also
# refuses the full stop, because a webhook signature joins its parts with it.
_LITERAL: Final = re.compile(r"[!-~]*")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class KeyTemplate(NamedTuple):
    """A compiled template: literal texts, and the placeholders between them."""

    literals: tuple[str, ...]
    placeholders: tuple[str, ...]

    @property
    def has_time(self) -> bool:
        """Whether runs of one job can have different keys."""
        return any(placeholder in _TIMES for placeholder in self.placeholders)

    def render(self, job_id: UUID, scheduled_us: int, timezone: str) -> str:
        """The key of the run that is scheduled at `scheduled_us`."""
        key = self.literals[0]
        for placeholder, literal in zip(self.placeholders, self.literals[1:], strict=True):
            if placeholder == "job_id":
                key += str(job_id)
            else:
                key += _TIMES[placeholder].text(scheduled_us, timezone)
            key += literal
        return key


def check_template(template: object, *, is_recurring: bool) -> KeyTemplate:
    """Compile the template of a new job, or raise `InvalidIdempotencyKey`."""
    if not isinstance(template, str):
        raise _invalid("a template must be text, e.g. {{job_id}}:{{scheduled_at_unix}}")
    compiled = compile_template(template)
    if is_recurring and not compiled.has_time:
        raise _invalid(
            f"{quoted(template)} gives every run the same key, so a recurring job would take "
            "effect only once; add a time, e.g. {{scheduled_at_unix}} or {{date}}"
        )
    return compiled


@lru_cache(maxsize=1_024)
def compile_template(template: str) -> KeyTemplate:
    """Compile a template, or raise `InvalidIdempotencyKey`."""
    if not 1 <= len(template) <= MAX_LENGTH:
        raise _invalid(f"the template has {len(template)} characters; expected 1 to {MAX_LENGTH}")
    # `split` with one group alternates: literal, placeholder, literal, …
    parts = _PLACEHOLDER.split(template)
    compiled = KeyTemplate(literals=tuple(parts[::2]), placeholders=tuple(parts[1::2]))
    for placeholder in compiled.placeholders:
        if placeholder not in _WIDTHS:
            raise _invalid(
                f"{quoted(placeholder)} is not a valid placeholder; "
                f"must be one of: {', '.join(_WIDTHS)}"
            )
    for literal in compiled.literals:
        _check_literal(literal)
    _check_width(compiled)
    return compiled


def _check_literal(literal: str) -> None:
    if "{" in literal or "}" in literal:
        raise _invalid(
            f"the braces in {quoted(literal)} are not a placeholder; braces are only allowed "
            "in pairs around a placeholder, e.g. {{job_id}}"
        )
    if "." in literal or not _LITERAL.fullmatch(literal):
        raise _invalid(
            f"{quoted(literal)} contains an invalid character; "
            "use printable ASCII without spaces and full stops"
        )


def _check_width(compiled: KeyTemplate) -> None:
    width = sum(map(len, compiled.literals)) + sum(_WIDTHS[name] for name in compiled.placeholders)
    if width > MAX_LENGTH:
        raise _invalid(
            f"a key would have up to {width} characters; at most {MAX_LENGTH} are allowed"
        )


def _invalid(message: str) -> InvalidIdempotencyKey:
    return InvalidIdempotencyKey(message, pointer=POINTER)


# The jobs of a hot second share their scheduled time and mostly their zone, so each text is
# rendered once for all of them.
_cached: Final = lru_cache(maxsize=1_024)


@_cached
def _scheduled_at(scheduled_us: int, timezone: str) -> str:
    whole = _EPOCH + timedelta(seconds=scheduled_us // SECOND)
    return f"{whole:%Y-%m-%dT%H:%M:%S}{_fraction(scheduled_us)}Z"


@_cached
def _scheduled_at_unix(scheduled_us: int, timezone: str) -> str:
    return f"{scheduled_us // SECOND}{_fraction(scheduled_us)}"


@_cached
def _date(scheduled_us: int, timezone: str) -> str:
    return f"{_local(scheduled_us, timezone):%Y-%m-%d}"


@_cached
def _week(scheduled_us: int, timezone: str) -> str:
    year, week, _ = _local(scheduled_us, timezone).isocalendar()
    return f"{year:04}-W{week:02}"


@_cached
def _month(scheduled_us: int, timezone: str) -> str:
    return f"{_local(scheduled_us, timezone):%Y-%m}"


@_cached
def _hour(scheduled_us: int, timezone: str) -> str:
    return f"{_local(scheduled_us, timezone):%Y-%m-%dT%H%z}"


def _local(scheduled_us: int, timezone: str) -> datetime:
    return (_EPOCH + timedelta(microseconds=scheduled_us)).astimezone(ZoneInfo(timezone))


def _fraction(scheduled_us: int) -> str:
    microseconds = scheduled_us % SECOND
    return f"_{microseconds:06}" if microseconds else ""


class _Time(NamedTuple):
    text: Callable[[int, str], str]
    width: int  # maximum number of characters


_TIMES: Final[Mapping[str, _Time]] = {
    "scheduled_at": _Time(_scheduled_at, len("2026-11-16T14:00:00_250000Z")),
    "scheduled_at_unix": _Time(_scheduled_at_unix, len("253402300799_250000")),
    "date": _Time(_date, len("2026-11-16")),
    "week": _Time(_week, len("2026-W47")),
    "month": _Time(_month, len("2026-11")),
    # The offset of Monrovia was -00:44:30 until 1972.
    "hour": _Time(_hour, len("1972-01-06T23-004430")),
}

_WIDTHS: Final[Mapping[str, int]] = {
    "job_id": len("018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f"),
    **{name: time.width for name, time in _TIMES.items()},
}
