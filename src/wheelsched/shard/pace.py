"""Fire: how fast the late lane may go, beside the work that is on time.

Invariant: over any stretch of time, the late lane gets no more runs than its rate allows, but for
one batch and what `CATCH_UP_US` hold. Its rate is a multiple of the measured rate of on-time runs,
and never below a floor: an idle shard drains its backlog too.
"""

from math import expm1
from typing import Final

from wheelsched.config import PaceConfig
from wheelsched.core.duration import MILLISECOND, SECOND

# Whoever asks is woken late now and then: so much of the time that passed is made up for.
CATCH_UP_US: Final = 100 * MILLISECOND
SAMPLE_US: Final = SECOND


class Pace:
    """Says when the next late batch may go: each pushes that instant on by its share of time."""

    __slots__ = ("_config", "_on_time_rate", "_runs", "_sampled_at_us", "ready_us")

    def __init__(self, config: PaceConfig) -> None:
        self._config = config
        self._on_time_rate = 0.0  # runs per second, smoothed
        self._runs = 0  # on time, in the sample under way
        self._sampled_at_us = 0  # long ago, and nothing went since
        self.ready_us = 0

    @property
    def late_rate(self) -> float:
        """In runs per second."""
        return max(self._config.factor * self._on_time_rate, self._config.floor)

    def count_on_time(self, runs: int, now_us: int) -> None:
        """Measures work that went out on time."""
        if now_us >= self._sampled_at_us + SAMPLE_US:
            self._sample(now_us)
        self._runs += runs

    def spend(self, runs: int, now_us: int) -> None:
        """Lets a late batch go. It may be bigger than what is left: the next waits the longer."""
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
