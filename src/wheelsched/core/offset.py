"""The offset to the database's clock: from round trips to an estimate, and from there to a time.

Invariant: while the two clocks drift apart by no more than `DRIFT_PARTS` allows, the true offset
lies within the error of the estimate, however unevenly a round trip was spent; and time by a
`Slew` never goes back. No instant here is of the host's wall clock: what is sent and received is
counted by the process's own clock, what is read by the database's.

A round trip tells the offset within half its length: the database read its clock at some instant
in between. From then on the error grows by the drift. So the best sample is the one whose error
is the least *now*: a short round trip outlives many longer ones, but not for ever.

A sample that contradicts the best one shows that the database's clock was moved. When it was moved
a little, the newer sample is right. A large difference is believed only when `STEP_SAMPLES` in
a row agree on it. One long round trip moves nothing: its error covers its difference.
"""

from typing import Final, NamedTuple

NS_PER_US: Final = 1_000

# Quartz is off by 50 ppm, but a kernel that follows a time server slews by up to 500.
DRIFT_PARTS: Final = 2_000

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
    def offset_ns(self) -> int:
        """What to add to the process's clock, had both ways taken the same time."""
        # The database cuts its time off to the microsecond: on average half of one is missing.
        database_ns = self.database_us * NS_PER_US + NS_PER_US // 2
        return database_ns - (self.sent_ns + self.received_ns) // 2

    def error_ns(self, now_ns: int) -> int:
        """How far off the offset may be by now."""
        half_trip_ns = (self.received_ns - self.sent_ns + 1) // 2
        drift_ns = max(now_ns - self.sent_ns, 0) // DRIFT_PARTS + 1
        return half_trip_ns + NS_PER_US // 2 + drift_ns

    def agrees_with(self, later: "ClockSample") -> bool:
        """Whether one offset can explain both samples."""
        now_ns = later.received_ns
        difference_ns = abs(later.offset_ns - self.offset_ns)
        return difference_ns <= self.error_ns(now_ns) + later.error_ns(now_ns)

    def is_better_than(self, other: "ClockSample", now_ns: int) -> bool:
        return self.error_ns(now_ns) <= other.error_ns(now_ns)


class OffsetEstimate(NamedTuple):
    """What the samples so far say of the offset."""

    best: ClockSample
    contradicting: tuple[ClockSample, ...] = ()  # in a row, far from the best, near each other

    def after(self, sample: ClockSample) -> "OffsetEstimate":
        """After a further sample."""
        if self.best.agrees_with(sample):
            is_better = sample.is_better_than(self.best, sample.received_ns)
            return OffsetEstimate(best=sample if is_better else self.best)
        if abs(sample.offset_ns - self.best.offset_ns) <= STEP_NS:
            return OffsetEstimate(best=sample)
        return self._contradicted(sample)

    def _contradicted(self, sample: ClockSample) -> "OffsetEstimate":
        row = self.contradicting
        if row and not row[-1].agrees_with(sample):
            row = ()
        row = (*row, sample)
        if len(row) < STEP_SAMPLES:
            return OffsetEstimate(best=self.best, contradicting=row)
        return OffsetEstimate(best=min(row, key=lambda each: each.error_ns(sample.received_ns)))


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
