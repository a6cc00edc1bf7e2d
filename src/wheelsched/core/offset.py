"""The offset to the database's clock: from round trips to an estimate, and from there to a time.

Invariant: while the two clocks drift apart by no more than `DRIFT_PARTS` allows, the true offset
lies within the error of the estimate, however unevenly a round trip was spent; and time by a
`Slew` never goes back. No instant here is of the host's wall clock: what is sent and received is
counted by the process's own clock, what is read by the database's.

A round trip tells between what the offset lies: the database read its clock at some instant in
between. From then on the bounds drift apart. The offset lies within the bounds of *every* sample,
so what is known is what the latest have in common: of two that were held up, one on its way there
and one on its way back, both together tell it as well as one that was not. A loop with much to do
holds up most of them, and on the way back more than on the way there: the middle of what is known
is off by much then. So the estimate is the middle of one sample, that of the shortest round trip;
another takes its place when its own is as short, or the one before has grown old, by what quartz
drifts. It is moved into what is known when it lies outside.

A sample that contradicts what is known shows that the database's clock was moved. When it was
moved a little, the newer sample is right. A large difference is believed only when `STEP_SAMPLES`
in a row agree on it. One long round trip moves nothing: its bounds hold all that is known.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

NS_PER_US: Final = 1_000

# Quartz is off by 50 ppm, but a kernel that follows a time server slews by up to 500, and there are
# two of them.
DRIFT_PARTS: Final = 900

# Should they drift apart faster all the same, what is known is wrong by that for so long only.
SAMPLES: Final = 30

# What the clocks of two hosts drift apart by, mostly: as an estimate grows old.
AGING_PARTS: Final = 50_000

# A correction is spread: one part in 200, so that the largest is made in 20 s.
SLEW_PARTS: Final = 200

# A larger correction is a step: spread, it would keep the time wrong for longer than that.
STEP_NS: Final = 100_000_000
STEP_SAMPLES: Final = 3


# Tuples, not structs: whoever embeds the wheel imports the clock, and that stays cheap.


class ClockSample(NamedTuple):
    """One reading of the database's clock, and the instants around it by the process's own."""

    sent_ns: int
    database_us: int
    received_ns: int

    @property
    def bounds(self) -> "Bounds":
        """Between what the offset lies, as far as this sample tells."""
        drift_ns = _drift_ns(self.received_ns - self.sent_ns)
        read_ns = self.database_us * NS_PER_US  # and up to a microsecond more, which it cuts off
        return Bounds(
            at_ns=self.received_ns,
            low_ns=read_ns - self.received_ns - drift_ns,
            high_ns=read_ns + NS_PER_US - self.sent_ns + drift_ns,
        )


class Bounds(NamedTuple):
    """Between what the offset lies: what to add to the process's clock."""

    at_ns: int  # from then on they drift apart
    low_ns: int
    high_ns: int

    @property
    def offset_ns(self) -> int:
        """The middle: as far from both."""
        return (self.low_ns + self.high_ns) // 2

    @property
    def doubt_ns(self) -> int:
        """How far the middle is from both."""
        return (self.high_ns - self.low_ns + 1) // 2

    def nearest(self, offset_ns: int) -> int:
        """The offset within them that is nearest to another one."""
        return min(max(offset_ns, self.low_ns), self.high_ns)

    def error_ns(self, offset_ns: int, now_ns: int) -> int:
        """How far off an offset within them may be by now."""
        furthest_ns = max(offset_ns - self.low_ns, self.high_ns - offset_ns)
        return furthest_ns + _drift_ns(now_ns - self.at_ns)

    def grown(self, now_ns: int) -> "Bounds":
        """By now."""
        drift_ns = _drift_ns(now_ns - self.at_ns)
        return Bounds(now_ns, self.low_ns - drift_ns, self.high_ns + drift_ns)

    def common(self, later: "Bounds") -> "Bounds | None":
        """What these and later ones have in common; None: one offset cannot explain both."""
        grown = self.grown(later.at_ns)
        low_ns, high_ns = max(grown.low_ns, later.low_ns), min(grown.high_ns, later.high_ns)
        return Bounds(later.at_ns, low_ns, high_ns) if low_ns <= high_ns else None


def _drift_ns(elapsed_ns: int) -> int:
    return max(elapsed_ns, 0) // DRIFT_PARTS + 1


class OffsetEstimate(NamedTuple):
    """What the latest samples say of the offset."""

    offset_ns: int
    doubt_ns: int  # how long the round trip was that tells it, and how long ago that is
    bounds: Bounds  # what all of the latest have in common
    latest: tuple[Bounds, ...]
    contradicting: tuple[Bounds, ...] = ()  # in a row, far from these, near each other

    @staticmethod
    def of(told: Bounds) -> "OffsetEstimate":
        """What one sample says alone."""
        return OffsetEstimate(told.offset_ns, told.doubt_ns, told, (told,))

    def error_ns(self, now_ns: int) -> int:
        """How far off it may be by now."""
        return self.bounds.error_ns(self.offset_ns, now_ns)

    def after(self, sample: ClockSample) -> "OffsetEstimate":
        """After a further sample."""
        told = sample.bounds
        latest = (*self.latest[1 - SAMPLES :], told)
        common = _common(latest)
        if common is not None:
            offset_ns, doubt_ns = self._better(told)
            return OffsetEstimate(common.nearest(offset_ns), doubt_ns, common, latest)
        if abs(told.offset_ns - self.offset_ns) <= STEP_NS:
            return OffsetEstimate.of(told)
        return self._contradicted(told)

    def _better(self, told: Bounds) -> tuple[int, int]:
        """This or what a further sample tells: the one that leaves less in doubt."""
        aged_ns = max(told.at_ns - self.bounds.at_ns, 0) // AGING_PARTS
        doubt_ns = self.doubt_ns + aged_ns
        if told.doubt_ns <= doubt_ns:
            return told.offset_ns, told.doubt_ns
        return self.offset_ns, doubt_ns

    def _contradicted(self, told: Bounds) -> "OffsetEstimate":
        row = self.contradicting
        if row and row[-1].common(told) is None:
            row = ()
        row = (*row, told)
        if len(row) < STEP_SAMPLES:
            return self._replace(contradicting=row)
        return OffsetEstimate.of(
            min(row, key=lambda each: each.error_ns(each.offset_ns, told.at_ns))
        )


def _common(told: Sequence[Bounds]) -> Bounds | None:
    """What samples have in common, the latest last; None: nothing."""
    bounds: Bounds | None = told[0]
    for later in told[1:]:
        if bounds is None:
            return None
        bounds = bounds.common(later)
    return bounds


class Slew(NamedTuple):
    """The offset as a function of the process's clock: a slope until an instant, then level.

    The slope is one part in `SLEW_PARTS`, upwards (1) or downwards (-1).
    """

    offset_ns: int  # where it ends
    until_ns: int
    direction: int

    @staticmethod
    def level(offset_ns: int) -> "Slew":
        return Slew(offset_ns=offset_ns, until_ns=0, direction=1)

    def toward(self, offset_ns: int, now_ns: int) -> "Slew":
        """From where the offset is now to another one."""
        correction_ns = offset_ns - self.offset_at(now_ns)
        return Slew(
            offset_ns=offset_ns,
            until_ns=now_ns + abs(correction_ns) * SLEW_PARTS,
            direction=1 if correction_ns > 0 else -1,
        )

    def left_ns(self, now_ns: int) -> int:
        """How much of the correction is still to be made."""
        return max(self.until_ns - now_ns, 0) // SLEW_PARTS

    def offset_at(self, now_ns: int) -> int:
        """The offset at an instant of the process's clock."""
        if now_ns >= self.until_ns:
            return self.offset_ns
        return self.offset_ns - self.direction * ((self.until_ns - now_ns) // SLEW_PARTS)

    def instant_of(self, time_ns: int) -> int:
        """The first instant of the process's clock at which the corrected time is `time_ns`."""
        instant_ns = time_ns - self.offset_ns
        if instant_ns >= self.until_ns:
            return instant_ns
        # On the slope: solved without its rounding, which moves the answer by at most one.
        left_ns = (self.until_ns - instant_ns) * SLEW_PARTS // (SLEW_PARTS + self.direction)
        instant_ns = self.until_ns - left_ns - 1
        is_early = instant_ns + self.offset_at(instant_ns) < time_ns
        return instant_ns + is_early
