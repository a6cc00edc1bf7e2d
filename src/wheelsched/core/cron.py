"""Cron text: checked, its `H` hashed by the job's id, expanded by croniter into masks.

Invariant: two jobs with one expression and equal choices for its `H` share one calendar, and
croniter sees a distinct expression once, however many jobs fill it.

| written | means |
|---|---|
| five fields | minute, hour, day of month, month, day of week |
| six fields | the same with the second first |
| `L` as day of month | the last day |
| `5L` or `L5` as day of week | the last Friday of the month |
| `1#2` as day of week | the second Monday of the month |
| `H`, `H(9-17)`, `H/15`, `H(0-29)/10` | a value, or the offset of a step, by the job's id |
| `?` as either day | `*` |
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from croniter import croniter
from croniter.croniter import CroniterError
from msgspec import structs

from wheelsched.core.cron_calendar import CronCalendar, CronFields
from wheelsched.core.cron_terms import FIELDS, MONTH, WEEKDAY, Choose, Field, Hash, read_term
from wheelsched.errors import InvalidCron, quoted

# Where `CronFields` keeps each of the `FIELDS`.
_MASKS: Final = ("seconds", "minutes", "hours", "days", "months", "weekdays")

ALIASES: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}

Template = tuple[str | Hash, ...]
"""The pieces of an expression in croniter's spelling, each `H` still to be filled."""


def normalise(expression: str) -> str:
    """The expression in capitals and single spaces, its alias spelt out, of five fields or six."""
    text = " ".join(expression.upper().split())
    if text.startswith("@"):
        if text not in ALIASES:
            known = ", ".join(ALIASES).lower()
            raise InvalidCron(f"{expression!r} names no time; the aliases are {known}")
        text = ALIASES[text]
    count = len(text.split())
    if count not in (5, 6):
        raise InvalidCron(
            f"{expression!r} has {count} fields; cron has five (minute, hour, day of month, "
            "month, day of week), or six with the second first"
        )
    template(text)
    return text


@lru_cache(maxsize=16_384)
def template(text: str) -> Template:
    """The checked pieces of a normalised expression."""
    return _pieces(_terms(text))


def _terms(text: str) -> list[list[str | Hash]]:
    """The checked terms of each field."""
    fields = text.split()
    first = len(FIELDS) - len(fields)
    terms = [
        [read_term(index, term) for term in field.split(",")]
        for index, field in enumerate(fields, start=first)
    ]
    kinds = {isinstance(term, str) and ("#" in term or "L" in term) for term in terms[-1]}
    if len(kinds) > 1:
        raise InvalidCron(
            f"day of week {fields[-1]!r} mixes plain days with '#' or 'L'; use two schedules"
        )
    return terms


def is_hashed(pieces: Template) -> bool:
    """Whether jobs with this expression differ in their due times."""
    return any(isinstance(piece, Hash) for piece in pieces)


def fill(pieces: Template, choose: Choose) -> str:
    """The expression with each `H` replaced by its values."""
    return "".join(
        piece if isinstance(piece, str) else ",".join(map(str, piece.values(piece.choice(choose))))
        for piece in pieces
    )


def choices(pieces: Template, choose: Choose) -> tuple[int, ...]:
    """What is chosen for each `H`, in order: all in which two jobs with one expression differ."""
    return tuple([piece.choice(choose) for piece in pieces if isinstance(piece, Hash)])


def hashed_by(job_id: bytes) -> Choose:
    """Choices that spread jobs evenly, each field independent of the others."""
    digest = b""

    def choose(field: int, low: int, high: int) -> int:
        nonlocal digest
        if not digest:  # most expressions have no `H`, and never come here
            digest = blake2b(job_id, digest_size=48, person=b"wheelsched.cron").digest()
        drawn = int.from_bytes(digest[8 * field : 8 * field + 8])
        return low + (drawn * (high - low + 1) >> 64)

    return choose


def least_lucky(field: int, low: int, high: int) -> int:
    """The choice with the fewest due times: the last day, the shortest month."""
    if FIELDS[field] is MONTH:
        return next((month for month in (2, 4, 6, 9, 11) if low <= month <= high), low)
    return high


@lru_cache(maxsize=16_384)
def calendar(text: str, chosen: tuple[int, ...] = ()) -> CronCalendar:
    """The calendar of a normalised expression, given what is chosen for each `H` in it."""
    fields = _expanded(text)
    if not chosen:
        return CronCalendar(fields)
    hashes = [piece for piece in template(text) if isinstance(piece, Hash)]
    masks = {name: getattr(fields, name) for name in _MASKS}
    for piece, choice in zip(hashes, chosen, strict=True):
        name = _MASKS[piece.field]
        for value in piece.values(choice):
            # Sunday is 0 and 7, in a week of stars as in any other.
            masks[name] |= 1 << (value % 7 if FIELDS[piece.field] is WEEKDAY else value)
    return CronCalendar(structs.replace(fields, **masks))


@lru_cache(maxsize=16_384)
def _expanded(text: str) -> CronFields:
    """The fields of a normalised expression, without what its `H` will add."""
    terms = _terms(text)
    written = [[term for term in field if isinstance(term, str)] for field in terms]
    # A field of nothing but `H` is a star for croniter, and empty for us.
    expression = " ".join([",".join(field) or "*" for field in written])
    try:
        expanded, nth_weekdays = croniter.expand(expression, second_at_beginning=True)
    except CroniterError as error:
        raise InvalidCron(f"{quoted(text)} is not a cron expression: {error}") from error
    # croniter puts the second last.
    ordered = [*expanded[5:], *expanded[:5]]
    masks = [
        _mask(values, field) if strings else 0
        for strings, values, field in zip(written, ordered, FIELDS[-len(written) :], strict=True)
    ]
    seconds, minutes, hours, days, months, weekdays = [1, *masks][-6:]
    is_star = [str(field[0]).startswith("*") for field in terms]
    return CronFields(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        # A field of `#` and `L` has no plain days, though croniter lists them as such.
        weekdays=0 if nth_weekdays else weekdays,
        last_day="l" in ordered[-3],
        nth_weekdays=frozenset(
            (int(weekday), -1 if str(nth) == "l" else nth)
            for weekday, every_nth in nth_weekdays.items()
            for nth in every_nth
        ),
        either_day=not (is_star[-3] or is_star[-1]),
    )


def _pieces(terms: list[list[str | Hash]]) -> Template:
    """Terms joined by commas and fields by spaces, as few pieces as the `H` in them allow."""
    pieces: list[str | Hash] = []
    for field in terms:
        for term in field:
            pieces += [term, ","]
        pieces[-1] = " "
    merged: list[str | Hash] = []
    for piece in pieces[:-1]:
        if merged and isinstance(piece, str) and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return tuple(merged)


def _mask(values: Sequence[int | str], field: Field) -> int:
    if "*" in values:
        return sum(1 << value for value in range(field.low, field.high + 1))
    return sum(1 << value for value in values if isinstance(value, int))
