"""A histogram of durations: integer microseconds in, counts by width, quantiles out.

Invariant: a value is counted in a bucket whose width is at most 1/32 of it, so that a quantile is
never less than the true one and at most 3.2 % more; up to 64 µs it is exact. The size is fixed,
whatever is observed, and histograms of several shards add up to one of all of them.

Each power of two is cut into 32 buckets of one width. What is below zero counts as zero, and what
is above `LARGEST_US`, twelve days, as that.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil
from typing import Final

from msgspec import Struct, field

_BITS: Final = 5  # 2 ** 5 buckets in each power of two
_KEPT_BITS: Final = _BITS + 1  # of a value, the leading ones
_EXACT: Final = 1 << _KEPT_BITS  # below it, a bucket for each value
_LARGEST_BITS: Final = 40

LARGEST_US: Final = (1 << _LARGEST_BITS) - 1


def _bucket_of(value_us: int) -> int:
    shift = max(value_us.bit_length() - _KEPT_BITS, 0)
    return (shift << _BITS) + (value_us >> shift)


def _highest_in(bucket: int) -> int:
    shift = max((bucket >> _BITS) - 1, 0)
    return ((bucket - (shift << _BITS) + 1) << shift) - 1


_BUCKETS: Final = _bucket_of(LARGEST_US) + 1


class Histogram(Struct, kw_only=True):
    """Counts of durations, by the microsecond and by 3 %."""

    counts: list[int] = field(default_factory=lambda: [0] * _BUCKETS)
    sum_us: int = 0
    max_us: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value_us: int, times: int = 1) -> None:
        # `_bucket_of`, written out: this is called for every run, and a call costs as much again.
        if value_us > self.max_us:
            value_us = self.max_us = min(value_us, LARGEST_US)
        if value_us >= _EXACT:
            shift = value_us.bit_length() - _KEPT_BITS
            self.counts[(shift << _BITS) + (value_us >> shift)] += times
            self.sum_us += value_us * times
        elif value_us > 0:
            self.counts[value_us] += times
            self.sum_us += value_us * times
        else:
            self.counts[0] += times

    def observe_many(self, values_us: Iterable[int]) -> None:
        observe = self.observe
        for value_us in values_us:
            observe(value_us)

    def quantile(self, share: float) -> int:
        """The least value that at least this share of the observed ones do not exceed; 0 of none.

        Rounded up to the highest value of its bucket: it never flatters.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"a share lies between 0 and 1, not {share}")
        rank = max(ceil(share * self.count), 1)
        for bucket, count in enumerate(accumulate(self.counts)):
            if count >= rank:
                return min(_highest_in(bucket), self.max_us)
        return 0

    def counts_up_to(self, bounds_us: Sequence[int]) -> list[int]:
        """How many values each bound includes, the bounds rounded down to the end of a bucket."""
        included = [0, *accumulate(self.counts)]
        return [included[_bucket_of(min(bound_us, LARGEST_US) + 1)] for bound_us in bounds_us]

    def merge(self, other: "Histogram") -> None:
        """Count what the other one has counted too."""
        self.counts = [
            mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.sum_us += other.sum_us
        self.max_us = max(self.max_us, other.max_us)
