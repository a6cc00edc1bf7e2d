"""The lead: how far ahead of their time runs are armed.

Invariant: the lead is never shorter than `least`, nor longer than the forecast; and a crowded
second is begun early enough that, at the measured rate and with headroom, its last run is armed
`least` before its first is due.
"""

from collections.abc import Sequence

from wheelsched.config import LeadConfig
from wheelsched.core.duration import SECOND

_SMOOTHING = 0.2  # of a new measurement in the rate: some ten batches make it forget


class ArmingRate:
    """How many runs a second arming manages, measured on its batches."""

    def __init__(self, config: LeadConfig) -> None:
        self._per_second = config.first_rate

    @property
    def per_second(self) -> float:
        return self._per_second

    def measured(self, runs: int, took_us: int) -> None:
        """After a batch. Small ones say nothing: a round trip is most of what they take."""
        if runs >= 100:
            rate = runs * SECOND / max(took_us, 1)
            self._per_second += (rate - self._per_second) * _SMOOTHING


def lead_us(forecast: Sequence[int], rate: float, config: LeadConfig) -> int:
    """The lead, given how many runs are due in each of the coming seconds.

    From the last second backwards: each wants to be done before its own beginning and before the
    work on the one after it must begin. The furthest one that has to be begun now sets the lead.
    """
    begin_us = len(forecast) * SECOND
    for second in range(len(forecast) - 1, -1, -1):
        done_us = min(begin_us, second * SECOND - config.least_us)
        begin_us = done_us - int(forecast[second] * SECOND * config.headroom / rate)
        if begin_us <= 0 and forecast[second]:
            return max(config.least_us, (second + 1) * SECOND)
    return config.least_us
