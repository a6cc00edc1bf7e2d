"""Records the due times that do not fire because a timer was stopped, e.g. by a pause.

Invariant: each of them is in the history, in its own row or in one row for all the others. So the
history alone shows why a job did not fire. Stopping a timer records the due times up to that
instant, and resuming it records those after it.
"""

from collections.abc import Collection

from wheelsched.core.model import SkipReason
from wheelsched.core.policies.misfire import Skip
from wheelsched.schedule.spec import Schedule


def unarmed_dues(
    schedule: Schedule,
    timer_us: int,
    stopped_at_us: int,
    reason: SkipReason,
    known_us: Collection[int] = (),
) -> Skip | None:
    """The due times that had passed but were not armed when the timer at `timer_us` was stopped.

    The timer's own due time counts even if the schedule no longer contains it. `known_us` already
    have rows, from an earlier version of the schedule. The new row avoids their keys.
    """
    first_us: int | None = timer_us
    while first_us is not None and first_us in known_us:
        first_us = schedule.next_after(first_us)
    if first_us is None or first_us > stopped_at_us:
        return None
    last_us = schedule.last_before(stopped_at_us + 1)
    while last_us is not None and last_us > first_us and last_us in known_us:
        last_us = schedule.last_before(last_us)
    last_us = first_us if last_us is None else max(first_us, last_us)
    return Skip(
        reason=reason,
        count=1 + schedule.count(first_us, last_us),
        first_us=first_us,
        last_us=last_us,
    )


def paused_over(
    schedule: Schedule, paused_at_us: int, resumed_at_us: int, withdrawn_us: Collection[int]
) -> Skip | None:
    """The due times from the beginning of a pause to its end.

    `withdrawn_us` were armed when the pause began. They come first and have their own rows.
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
