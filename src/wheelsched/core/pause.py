"""Pauses, and other ends of a timer: what becomes of the due times that nothing fires for.

Invariant: each of them is in the history, in a row of its own or in the one that stands for all the
others; so that nobody has to know of the change to see why nothing fired. A timer that is stopped
leaves those up to that instant, and a resumption those after it.
"""

from collections.abc import Collection

from wheelsched.core.misfire import Skip
from wheelsched.core.model import SkipReason
from wheelsched.core.spec import Schedule


def left_behind(
    schedule: Schedule,
    timer_us: int,
    stopped_at_us: int,
    reason: SkipReason,
    known_us: Collection[int] = (),
) -> Skip | None:
    """The due times that had passed, and were not armed, when a timer was stopped at `timer_us`.

    Its own is one of them whatever the schedule says by now: it was promised. `known_us` have rows
    already, of an earlier life of the schedule; the row of the others is at none of them.
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
