"""Limits the rate of the late lane, so that a backlog does not crowd out work on time.

Invariant: over any interval, the late lane sends no more runs than its rate allows, plus one batch
and what `CATCH_UP_US` is worth. The rate is a multiple of the measured rate of on-time runs, with a
floor: an idle shard drains its backlog too.
"""

from math import expm1
from typing import Final

from wheelsched.config import BacklogRateConfig
from wheelsched.values.duration import MILLISECOND, SECOND

# The caller sometimes wakes up late: this much of the lost time is made up for.
CATCH_UP_US: Final = 100 * MILLISECOND
SAMPLE_US: Final = SECOND


class BacklogRate:
    """Tells when the next late batch may go. Each batch moves that instant by the time it costs."""

    __slots__ = ("_config", "_on_time_rate", "_runs", "_sampled_at_us", "ready_us")

    def __init__(self, config: BacklogRateConfig) -> None:
        self._config = config
        self._on_time_rate = 0.0  # runs per second, smoothed
        self._runs = 0  # on time, in the current sample
        self._sampled_at_us = 0  # the first sample starts at the epoch
        self.ready_us = 0

    @property
    def late_rate(self) -> float:
        """The rate of the late lane, in runs per second."""
        return max(self._config.factor * self._on_time_rate, self._config.floor)

    def count_on_time(self, runs: int, now_us: int) -> None:
        """Counts runs that were sent on time."""
        if now_us >= self._sampled_at_us + SAMPLE_US:
            self._sample(now_us)
        self._runs += runs

    def spend(self, runs: int, now_us: int) -> None:
        """Counts a late batch. It may exceed the rate: the next batch then waits longer."""
        if now_us >= self._sampled_at_us + SAMPLE_US:
            self._sample(now_us)
        begin_us = max(self.ready_us, now_us - CATCH_UP_US)
        self.ready_us = begin_us + round(runs * SECOND / self.late_rate)

    def _sample(self, now_us: int) -> None:
        elapsed_us = now_us - self._sampled_at_us
        newness = -expm1(-elapsed_us / (self._config.smoothing_ms * MILLISECOND))
        measured_rate = self._runs * SECOND / elapsed_us
        self._on_time_rate += (measured_rate - self._on_time_rate) * newness
        self._runs = 0
        self._sampled_at_us = now_us
