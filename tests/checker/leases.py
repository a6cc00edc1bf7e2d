"""How long a worker that pulls has a run."""

from tests.checker.records import Arrival
from tests.checker.times import SECOND_US

DELIVERY_LEASE_US = 5 * SECOND_US


def lease_end_us(arrival: Arrival, by_us: int) -> int:
    """When an attempt was its worker's no longer, by the heartbeats that were sent until then.

    A heartbeat counts from when it was sent at the earliest; and only if it was answered, nobody
    can say that it was not written.
    """
    ends_us = [
        beat.sent_us + beat.lease_us
        for beat in arrival.beats
        if beat.is_held and beat.answered_us <= by_us
    ]
    return max([arrival.at_us + DELIVERY_LEASE_US, *ends_us])


def has_said_failed(arrival: Arrival, by_us: int) -> bool:
    """Whether its worker had said by then that the attempt has failed."""
    is_said = arrival.answered_us is not None and arrival.answered_us <= by_us
    return is_said and arrival.answer in ("failed", "rejected")
