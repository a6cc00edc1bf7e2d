"""The stored form of a schedule, and the protocols that compute its due times.

Invariant: a `Spec` contains everything that a schedule depends on, except the job's id and its
anchor. It never contains a resolved future instant, which a change of zone rules could invalidate.
"""

from typing import Final, Literal, Protocol

from msgspec import Struct

Kind = Literal["cron", "at", "every", "rrule"]
DstGap = Literal["shift", "skip"]
DstOverlap = Literal["first", "last", "both"]

# Due times lie in [1970, 2200). Zone rules further out are fiction.
FIRST_YEAR: Final = 1970
END_YEAR: Final = 2200
END_S: Final = 7_258_118_400  # 2200-01-01T00:00:00Z
END_US: Final = END_S * 1_000_000


class Spec(Struct, frozen=True, kw_only=True, gc=False):
    """A schedule, normalised and checked by `schedule.parse`.

    `expression` is the text of its kind: a cron expression, an ISO 8601 time, a duration, or
    iCalendar lines that begin with DTSTART. `exclude` contains local dates such as `2026-12-25`
    and inclusive ranges such as `2026-12-24/2027-01-02`. Every field is stored, so a new default
    does not change existing jobs.
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
    """A set of due times in UTC. Every method takes constant or logarithmic time."""

    def next_after(self, after_us: int) -> int | None:
        """The next due time > `after_us`, or None."""

    def last_before(self, before_us: int) -> int | None:
        """The last due time < `before_us`, or None."""

    def count(self, after_us: int, until_us: int) -> int:
        """How many due times lie in (`after_us`, `until_us`], without visiting each."""


class Schedule(Recurrence, Protocol):
    """The due times of one job, and the jitter of each."""

    def jitter_us(self, due_us: int) -> int:
        """The delay of the run due at `due_us`: deterministic, and it ends before the next one."""


class Calendar(Protocol):
    """A set of wall-clock seconds, counted from 1970-01-01T00:00:00 local time, without a zone."""

    def next_wall(self, after_s: int) -> int | None:
        """The next match > `after_s`, or None."""

    def last_wall(self, before_s: int) -> int | None:
        """The last match < `before_s`, or None."""

    def count_walls(self, from_s: int, until_s: int) -> int:
        """How many matches lie in [`from_s`, `until_s`)."""
