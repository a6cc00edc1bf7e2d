"""The lead: how far ahead of their due times runs are armed, and whether arming has to hurry.

Invariant: the lead is at least `least` and at most the forecast. *Arm* starts early enough on a hot
second that, at the measured rate and with headroom, its last run is armed `least` before its first
is due. While there is more time than `haste` asks for, *arm* works on one batch at a time and rests
after each for as long as it took, to leave the database to others.

Headroom applies only to peaks. A steady flow, what is due in most of the near seconds, is armed as
it comes, `least` ahead of each due time. If it were armed a second at a time with headroom, a
quarter of the rate would be armed a minute ahead.
"""

from collections.abc import Sequence

from msgspec import Struct

from wheelsched.config import LeadConfig
from wheelsched.values.duration import SECOND

_SMOOTHING = 0.2  # weight of a new measurement; ten batches replace the old rate


class ArmingRate:
    """The number of runs armed per second, measured on batches."""

    def __init__(self, config: LeadConfig) -> None:
        self._per_second = config.first_rate
        self._ended_us = 0

    @property
    def per_second(self) -> float:
        return self._per_second

    def measured(self, runs: int, began_us: int, ended_us: int) -> None:
        """Records a batch. If batches overlap, each counts from the end of the one before.

        Small batches are ignored: most of their time is the round trip.
        """
        took_us = ended_us - max(began_us, self._ended_us)
        self._ended_us = ended_us
        if runs >= 100:
            rate = runs * SECOND / max(took_us, 1)
            self._per_second += (rate - self._per_second) * _SMOOTHING


class Lead(Struct, frozen=True):
    """How far ahead to arm, and whether there is no time to rest between batches."""

    us: int
    is_hasty: bool = False


def look_ahead(forecast: Sequence[int], rate: float, config: LeadConfig) -> Lead:
    """Computes the lead from the number of runs due in each of the coming seconds."""
    # The wheel has only the next due time of a job, so the near seconds show the steady flow.
    near = sorted(forecast[: len(forecast) // 2])
    steady = near[len(near) // 2] if near else 0
    in_a_flow_us = max(config.least_us - SECOND, 0)  # before the second begins
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
    """The end of the furthest second whose arming has to start now, or 0.

    Goes from the last second backwards: the work for each must be done by its own deadline, and
    before the work for the next one must start.
    """
    begin_us = len(work_s) * SECOND
    for second in range(len(work_s) - 1, -1, -1):
        done_us = min(begin_us, wanted_us[second])
        begin_us = done_us - int(work_s[second] * SECOND)
        if begin_us <= 0 and work_s[second]:
            return (second + 1) * SECOND
    return 0
