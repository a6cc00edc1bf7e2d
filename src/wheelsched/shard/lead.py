"""The lead: how far ahead of their time runs are armed, and in what hurry.

Invariant: the lead is never shorter than `least`, nor longer than the forecast; and a crowded
second is begun early enough that, at the measured rate and with headroom, its last run is armed
`least` before its first is due. While there is more time than `haste` asks for, arming rests as
long as it works, one batch after the other, and leaves the database to everybody else.
"""

from collections.abc import Sequence

from msgspec import Struct

from wheelsched.config import LeadConfig
from wheelsched.core.duration import SECOND

_SMOOTHING = 0.2  # of a new measurement in the rate: some ten batches make it forget


class ArmingRate:
    """How many runs a second arming manages, measured on its batches."""

    def __init__(self, config: LeadConfig) -> None:
        self._per_second = config.first_rate
        self._ended_us = 0

    @property
    def per_second(self) -> float:
        return self._per_second

    def measured(self, runs: int, began_us: int, ended_us: int) -> None:
        """After a batch. Of those that overlap, each counts from the end of the one before.

        Small ones say nothing: a round trip is most of what they take.
        """
        took_us = ended_us - max(began_us, self._ended_us)
        self._ended_us = ended_us
        if runs >= 100:
            rate = runs * SECOND / max(took_us, 1)
            self._per_second += (rate - self._per_second) * _SMOOTHING


class Lead(Struct, frozen=True):
    """How far to reach, and whether there is time to rest in between."""

    us: int
    is_hasty: bool = False


def look_ahead(forecast: Sequence[int], rate: float, config: LeadConfig) -> Lead:
    """The lead, given how many runs are due in each of the coming seconds."""
    far_us = _reach_us(forecast, config.headroom / rate, config.least_us)
    hasty_us = _reach_us(forecast, config.haste / rate, config.least_us)
    return Lead(max(far_us, config.least_us), is_hasty=hasty_us > 0)


def _reach_us(forecast: Sequence[int], seconds_a_run: float, least_us: int) -> int:
    """The end of the furthest second that has to be begun now, or 0.

    From the last second backwards: each wants to be done before its own beginning and before the
    work on the one after it must begin.
    """
    begin_us = len(forecast) * SECOND
    for second in range(len(forecast) - 1, -1, -1):
        done_us = min(begin_us, second * SECOND - least_us)
        begin_us = done_us - int(forecast[second] * SECOND * seconds_a_run)
        if begin_us <= 0 and forecast[second]:
            return (second + 1) * SECOND
    return 0
