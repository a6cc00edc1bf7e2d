"""The lead: how far ahead of their time runs are armed, and in what hurry.

Invariant: the lead is never shorter than `least`, nor longer than the forecast; and a crowded
second is begun early enough that, at the measured rate and with headroom, its last run is armed
`least` before its first is due. While there is more time than `haste` asks for, arming rests as
long as it works, one batch after the other, and leaves the database to everybody else.

Headroom is for what stands out. What is due in most of the near seconds is armed as it comes,
`least` ahead of its own time and not of its second's: else the flow of each second would be armed
at once. With headroom for each of them, a quarter of the rate would be armed a minute ahead.
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
    # Of a job that recurs only the next due time is in sight: a flow is seen in what is near.
    near = sorted(forecast[: len(forecast) // 2])
    steady = near[len(near) // 2] if near else 0
    in_a_flow_us = max(config.least_us - SECOND, 0)  # before its second, for the first of it
    wanted_us = [
        second * SECOND - (config.least_us if due > 2 * steady else in_a_flow_us)
        for second, due in enumerate(forecast)
    ]

    def reach_us(factor: float) -> int:
        work_s = [(min(due, steady) + factor * max(due - steady, 0)) / rate for due in forecast]
        return _reach_us(work_s, wanted_us)

    far_us, hasty_us = reach_us(config.headroom), reach_us(config.haste)
    return Lead(max(far_us, config.least_us), is_hasty=hasty_us > config.least_us)


def _reach_us(work_s: Sequence[float], wanted_us: Sequence[int]) -> int:
    """The end of the furthest second that has to be begun now, or 0.

    From the last second backwards: each is to be done when it is wanted, and before the work on the
    one after it must begin.
    """
    begin_us = len(work_s) * SECOND
    for second in range(len(work_s) - 1, -1, -1):
        done_us = min(begin_us, wanted_us[second])
        begin_us = done_us - int(work_s[second] * SECOND)
        if begin_us <= 0 and work_s[second]:
            return (second + 1) * SECOND
    return 0
