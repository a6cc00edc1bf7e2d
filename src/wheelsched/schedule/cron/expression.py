"""Parses cron text: checks it, derives `H` from the job's id, and lets croniter expand it.

Invariant: two jobs with the same expression and the same values for `H` share one calendar.
croniter expands each distinct expression once, however many jobs use it.

| expression | meaning |
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

from msgspec import structs

from wheelsched.errors import InvalidCron, quoted
from wheelsched.extras import require
from wheelsched.schedule.cron.calendar import CronCalendar, CronFields
from wheelsched.schedule.cron.terms import FIELDS, MONTH, WEEKDAY, Choose, Field, Hash, read_term

try:
    from croniter import croniter
    from croniter.croniter import CroniterError
except ModuleNotFoundError:
    require("server")
    raise

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
"""The pieces of an expression in croniter's notation, with each `H` still open."""


def normalise(expression: str) -> str:
    """The canonical form: upper case, single spaces, aliases expanded, five or six fields."""
    text = " ".join(expression.upper().split())
    if text.startswith("@"):
        if text not in ALIASES:
            known = ", ".join(ALIASES).lower()
            raise InvalidCron(f"{expression!r} is not a known alias; must be one of: {known}")
        text = ALIASES[text]
    count = len(text.split())
    if count not in (5, 6):
        raise InvalidCron(
            f"{expression!r} has {count} fields; expected five (minute, hour, day of month, "
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
    """The value of each `H`, in order. Two jobs with one expression differ in nothing else."""
    return tuple([piece.choice(choose) for piece in pieces if isinstance(piece, Hash)])


def hashed_by(job_id: bytes) -> Choose:
    """Choose values from the job's id: spread evenly, and independently for each field."""
    digest = b""

    def choose(field: int, low: int, high: int) -> int:
        nonlocal digest
        if not digest:  # computed on demand, because most expressions have no `H`
            digest = blake2b(job_id, digest_size=48, person=b"wheelsched.cron").digest()
        drawn = int.from_bytes(digest[8 * field : 8 * field + 8])
        return low + (drawn * (high - low + 1) >> 64)

    return choose


def worst_case(field: int, low: int, high: int) -> int:
    """Choose the value with the fewest due times: the last day, the shortest month."""
    if FIELDS[field] is MONTH:
        return next((month for month in (2, 4, 6, 9, 11) if low <= month <= high), low)
    return high


@lru_cache(maxsize=16_384)
def calendar(text: str, chosen: tuple[int, ...] = ()) -> CronCalendar:
    """The calendar of a normalised expression, given the value of each `H`."""
    fields = _expanded(text)
    if not chosen:
        return CronCalendar(fields)
    hashes = [piece for piece in template(text) if isinstance(piece, Hash)]
    masks = {name: getattr(fields, name) for name in _MASKS}
    for piece, choice in zip(hashes, chosen, strict=True):
        name = _MASKS[piece.field]
        for value in piece.values(choice):
            # Sunday is both 0 and 7.
            masks[name] |= 1 << (value % 7 if FIELDS[piece.field] is WEEKDAY else value)
    return CronCalendar(structs.replace(fields, **masks))


@lru_cache(maxsize=16_384)
def _expanded(text: str) -> CronFields:
    """The fields of a normalised expression, without the values of its `H`."""
    terms = _terms(text)
    plain = [[term for term in field if isinstance(term, str)] for field in terms]
    # croniter gets a star for a field of only `H`; its mask stays empty here.
    expression = " ".join([",".join(field) or "*" for field in plain])
    try:
        expanded, nth_weekdays = croniter.expand(expression, second_at_beginning=True)
    except CroniterError as error:
        raise InvalidCron(f"{quoted(text)} is not a valid cron expression: {error}") from error
    # croniter puts the second last.
    ordered = [*expanded[5:], *expanded[:5]]
    masks = [
        _mask(values, field) if strings else 0
        for strings, values, field in zip(plain, ordered, FIELDS[-len(plain) :], strict=True)
    ]
    seconds, minutes, hours, days, months, weekdays = [1, *masks][-6:]
    is_star = [str(field[0]).startswith("*") for field in terms]
    return CronFields(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        # croniter also lists the days of `#` and `L` as plain days, which they are not.
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
    """Join terms by commas and fields by spaces, and merge the text between two `H`."""
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
