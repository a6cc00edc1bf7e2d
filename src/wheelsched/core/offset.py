"""Estimates the offset to the database's clock from round trips, and converts it to a time.

Invariant: as long as the two clocks drift apart by no more than `DRIFT_PARTS` allows, the true
offset lies within the error of the estimate, however asymmetric a round trip was. Time by a `Slew`
never goes back. The host's wall clock is never used: sending and receiving are timed by the
process's own clock, and the reading is by the database's.

A round trip bounds the offset, because the database read its clock at some instant in between.
From then on the bounds widen with drift. The true offset lies within the bounds of *every* sample,
so the known bounds are the intersection of the latest samples. Two delayed samples, one delayed on
the way there and one on the way back, together are as good as one that was not delayed. A busy
event loop delays most responses more than requests, so the middle of the intersection would be
biased. The estimate is therefore the middle of a single sample: the one with the shortest round
trip. Another sample replaces it if its round trip is as short, where the old estimate ages by the
drift of quartz. An estimate outside the intersection is moved to its nearest edge.

A sample that contradicts the known bounds shows that the database's clock was changed. If the
change is small, the newer sample is right. A large change is accepted only if `STEP_SAMPLES` in a
row agree on it. One long round trip changes nothing, because its bounds contain the known ones.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

NS_PER_US: Final = 1_000

# Quartz is off by 50 ppm, but a kernel that follows a time server slews by up to 500 ppm, and two
# clocks are involved.
DRIFT_PARTS: Final = 900

# If the clocks drift apart faster nevertheless, the error lasts only for this many samples.
SAMPLES: Final = 30

# The typical drift between the clocks of two hosts, by which an estimate ages.
AGING_PARTS: Final = 50_000

# A correction is slewed at one part in 200, so the largest takes 20 s.
SLEW_PARTS: Final = 200

# A larger correction is a step. Slewed, it would keep the time wrong for longer than that.
STEP_NS: Final = 100_000_000
STEP_SAMPLES: Final = 3


# Tuples, not structs: programs that embed the wheel import the clock, and that must stay cheap.


class ClockSample(NamedTuple):
    """One reading of the database's clock, and the instants around it by the process's clock."""

    sent_ns: int
    database_us: int
    received_ns: int

    @property
    def bounds(self) -> "Bounds":
        """The bounds on the offset from this sample alone."""
        drift_ns = _drift_ns(self.received_ns - self.sent_ns)
        read_ns = self.database_us * NS_PER_US  # plus up to 1 µs, which the database truncates
        return Bounds(
            at_ns=self.received_ns,
            low_ns=read_ns - self.received_ns - drift_ns,
            high_ns=read_ns + NS_PER_US - self.sent_ns + drift_ns,
        )


class Bounds(NamedTuple):
    """Bounds on the offset, which is added to the process's clock to get the database's time."""

    at_ns: int  # from this instant on they widen
    low_ns: int
    high_ns: int

    @property
    def offset_ns(self) -> int:
        """The middle of the bounds."""
        return (self.low_ns + self.high_ns) // 2

    @property
    def doubt_ns(self) -> int:
        """The distance from the middle to either bound."""
        return (self.high_ns - self.low_ns + 1) // 2

    def nearest(self, offset_ns: int) -> int:
        """Clamp an offset to the bounds."""
        return min(max(offset_ns, self.low_ns), self.high_ns)

    def error_ns(self, offset_ns: int, now_ns: int) -> int:
        """The maximum error of an offset within the bounds, now."""
        furthest_ns = max(offset_ns - self.low_ns, self.high_ns - offset_ns)
        return furthest_ns + _drift_ns(now_ns - self.at_ns)

    def widened(self, now_ns: int) -> "Bounds":
        """The bounds now, widened by drift."""
        drift_ns = _drift_ns(now_ns - self.at_ns)
        return Bounds(now_ns, self.low_ns - drift_ns, self.high_ns + drift_ns)

    def intersection(self, later: "Bounds") -> "Bounds | None":
        """The intersection with later bounds; None if they contradict each other."""
        widened = self.widened(later.at_ns)
        low_ns, high_ns = max(widened.low_ns, later.low_ns), min(widened.high_ns, later.high_ns)
        return Bounds(later.at_ns, low_ns, high_ns) if low_ns <= high_ns else None


def _drift_ns(elapsed_ns: int) -> int:
    return max(elapsed_ns, 0) // DRIFT_PARTS + 1


class OffsetEstimate(NamedTuple):
    """The offset as estimated from the latest samples."""

    offset_ns: int
    doubt_ns: int  # half the round trip of the sample it comes from, plus aging
    bounds: Bounds  # the intersection of the latest samples
    latest: tuple[Bounds, ...]
    contradicting: tuple[Bounds, ...] = ()  # successive samples far from these, near each other

    @staticmethod
    def of(sampled: Bounds) -> "OffsetEstimate":
        """The estimate from one sample alone."""
        return OffsetEstimate(sampled.offset_ns, sampled.doubt_ns, sampled, (sampled,))

    def error_ns(self, now_ns: int) -> int:
        """The maximum error of the estimate, now."""
        return self.bounds.error_ns(self.offset_ns, now_ns)

    def after(self, sample: ClockSample) -> "OffsetEstimate":
        """The estimate after another sample."""
        sampled = sample.bounds
        latest = (*self.latest[1 - SAMPLES :], sampled)
        known = _intersection(latest)
        if known is not None:
            offset_ns, doubt_ns = self._better(sampled)
            return OffsetEstimate(known.nearest(offset_ns), doubt_ns, known, latest)
        if abs(sampled.offset_ns - self.offset_ns) <= STEP_NS:
            return OffsetEstimate.of(sampled)
        return self._contradicted(sampled)

    def _better(self, sampled: Bounds) -> tuple[int, int]:
        """The offset and doubt of this estimate or of a new sample, whichever has less doubt."""
        aged_ns = max(sampled.at_ns - self.bounds.at_ns, 0) // AGING_PARTS
        doubt_ns = self.doubt_ns + aged_ns
        if sampled.doubt_ns <= doubt_ns:
            return sampled.offset_ns, sampled.doubt_ns
        return self.offset_ns, doubt_ns

    def _contradicted(self, sampled: Bounds) -> "OffsetEstimate":
        row = self.contradicting
        if row and row[-1].intersection(sampled) is None:
            row = ()
        row = (*row, sampled)
        if len(row) < STEP_SAMPLES:
            return self._replace(contradicting=row)
        return OffsetEstimate.of(
            min(row, key=lambda each: each.error_ns(each.offset_ns, sampled.at_ns))
        )


def _intersection(samples: Sequence[Bounds]) -> Bounds | None:
    """The intersection of samples, oldest first; None if it is empty."""
    bounds: Bounds | None = samples[0]
    for later in samples[1:]:
        if bounds is None:
            return None
        bounds = bounds.intersection(later)
    return bounds


class Slew(NamedTuple):
    """The offset as a function of the process's clock: it changes until an instant, then stays.

    It changes by one part in `SLEW_PARTS`, upwards (1) or downwards (-1).
    """

    offset_ns: int  # the final value
    until_ns: int
    direction: int

    @staticmethod
    def level(offset_ns: int) -> "Slew":
        return Slew(offset_ns=offset_ns, until_ns=0, direction=1)

    def toward(self, offset_ns: int, now_ns: int) -> "Slew":
        """The slew from the current offset to another one."""
        correction_ns = offset_ns - self.offset_at(now_ns)
        return Slew(
            offset_ns=offset_ns,
            until_ns=now_ns + abs(correction_ns) * SLEW_PARTS,
            direction=1 if correction_ns > 0 else -1,
        )

    def left_ns(self, now_ns: int) -> int:
        """The remaining correction."""
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
        # During the slew: solved without rounding, which changes the result by at most one.
        left_ns = (self.until_ns - instant_ns) * SLEW_PARTS // (SLEW_PARTS + self.direction)
        instant_ns = self.until_ns - left_ns - 1
        is_early = instant_ns + self.offset_at(instant_ns) < time_ns
        return instant_ns + is_early
