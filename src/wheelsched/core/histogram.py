"""A histogram of durations in integer microseconds, with quantiles.

Invariant: the bucket of a value is at most 1/32 of the value wide. So a quantile is never less
than the true one and at most 3.2 % more; up to 64 µs it is exact. The size is fixed, whatever is
observed, and the histograms of several shards can be merged.

Each power of two is divided into 32 buckets of equal width. Negative values count as zero, and
values above `LARGEST_US`, twelve days, count as `LARGEST_US`.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil
from typing import Final

from msgspec import Struct, field

_BITS: Final = 5  # 2 ** 5 buckets in each power of two
_KEPT_BITS: Final = _BITS + 1  # leading bits of a value that select its bucket
_EXACT: Final = 1 << _KEPT_BITS  # each smaller value has its own bucket
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
    """Counts of durations, exact to the microsecond or to 3 %."""

    counts: list[int] = field(default_factory=lambda: [0] * _BUCKETS)
    sum_us: int = 0
    max_us: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value_us: int, times: int = 1) -> None:
        # `_bucket_of` is inlined: this runs for every run, and a call would double the cost.
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
        """The least value that at least this share of all values do not exceed; 0 if empty.

        It is rounded up to the highest value of its bucket, so it is never too low.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"the share {share} is out of range; expected 0 to 1")
        rank = max(ceil(share * self.count), 1)
        for bucket, count in enumerate(accumulate(self.counts)):
            if count >= rank:
                return min(_highest_in(bucket), self.max_us)
        return 0

    def counts_up_to(self, bounds_us: Sequence[int]) -> list[int]:
        """How many values are within each bound. Bounds are rounded down to the end of a bucket."""
        included = [0, *accumulate(self.counts)]
        return [included[_bucket_of(min(bound_us, LARGEST_US) + 1)] for bound_us in bounds_us]

    def merge(self, other: "Histogram") -> None:
        """Add the counts of another histogram."""
        self.counts = [
            mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.sum_us += other.sum_us
        self.max_us = max(self.max_us, other.max_us)
