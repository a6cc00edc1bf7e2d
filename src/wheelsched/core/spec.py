"""What a schedule is: the value that is stored, and the questions that it answers.

Invariant: a `Spec` says all that a schedule depends on except the job's id and its anchor, and
it never holds a resolved future instant that a change of zone rules could make wrong.
"""

from typing import Final, Literal, Protocol

from msgspec import Struct

Kind = Literal["cron", "at", "every", "rrule"]
DstGap = Literal["shift", "skip"]
DstOverlap = Literal["first", "last", "both"]

# Due times lie in [1970, 2200): further out, zone rules are fiction and 400-year cycles not needed.
FIRST_YEAR: Final = 1970
END_YEAR: Final = 2200
END_S: Final = 7_258_118_400  # 2200-01-01T00:00:00Z
END_US: Final = END_S * 1_000_000


class Spec(Struct, frozen=True, kw_only=True, gc=False):
    """A schedule as its user wrote it, normalised and checked by `schedule.parse`.

    `expression` is text of its kind: a cron expression, an ISO-8601 time, a duration, or
    iCalendar lines that begin with DTSTART. `exclude` holds local dates, `2026-12-25`, and
    ranges of them with both ends excluded too, `2026-12-24/2027-01-02`. Stored with every field,
    so that a default may change without changing what is stored.
    """

    kind: Kind
    expression: str
    timezone: str = "UTC"
    dst_gap: DstGap = "shift"
    dst_overlap: DstOverlap = "first"
    start_us: int | None = None
    end_us: int | None = None
    exclude: tuple[str, ...] = ()
    jitter_us: int = 0


class Recurrence(Protocol):
    """A set of due times in UTC, open to questions in constant or logarithmic time."""

    def next_after(self, after_us: int) -> int | None:
        """The least due time > `after_us`; None when there is none."""

    def last_before(self, before_us: int) -> int | None:
        """The greatest due time < `before_us`; None when there is none."""

    def count(self, after_us: int, until_us: int) -> int:
        """How many due times lie in (`after_us`, `until_us`]: by jumping, never one by one."""


class Schedule(Recurrence, Protocol):
    """The due times of one job, and the deliberate delay of each."""

    def jitter_us(self, due_us: int) -> int:
        """The delay of the run due at `due_us`: the same each time, below the next due time."""


class Calendar(Protocol):
    """A set of wall-clock seconds, counted from 1970-01-01T00:00:00 local, zones unknown."""

    def next_wall(self, after_s: int) -> int | None:
        """The least match > `after_s`."""

    def last_wall(self, before_s: int) -> int | None:
        """The greatest match < `before_s`."""

    def count_walls(self, from_s: int, until_s: int) -> int:
        """How many matches lie in [`from_s`, `until_s`)."""
