"""Pauses: what becomes of the due times that a job was paused over.

Invariant: each of them is in the history, in a row of its own or in the one that stands for all the
others; so that nobody has to know of the pause to see why nothing fired.
"""

from collections.abc import Collection

from wheelsched.core.misfire import Skip
from wheelsched.core.model import SkipReason
from wheelsched.core.spec import Schedule


def paused_over(
    schedule: Schedule, paused_at_us: int, resumed_at_us: int, withdrawn_us: Collection[int]
) -> Skip | None:
    """The due times after a pause began, up to the instant from which the job goes on.

    Those that were armed when it began come first, and have rows of their own: `withdrawn_us`.
    """
    first_us = schedule.next_after(paused_at_us)
    while first_us is not None and first_us in withdrawn_us:
        first_us = schedule.next_after(first_us)
    if first_us is None or first_us > resumed_at_us:
        return None
    last_us = schedule.last_before(resumed_at_us + 1)
    assert last_us is not None
    return Skip(
        reason=SkipReason.PAUSED,
        count=1 + schedule.count(first_us, last_us),
        first_us=first_us,
        last_us=last_us,
    )
