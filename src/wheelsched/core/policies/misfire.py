"""The misfire policy: decides which due times of a timer fire, and which are skipped.

Invariant: every due time from the timer's own up to now is accounted for exactly once, as a fire or
in the count of the single skip. The next due time is later than all of them. The cost depends on
the number of fires, never on the number of missed due times.

The rules, by age:

- *On time*: a due time in the future or within `grace` fires under every policy.
- *Missed*: past its grace and within `window`. `once` fires the latest of these, `all` the
  latest `max_missed`, oldest first, both in the late lane; `skip` fires none.
- *Past the window*: skipped.

Only the latest missed due times fire, so the skipped ones are one contiguous range that begins with
the timer. One row records it: reason, count, first and last due time.

Age counts from the planned dispatch of a run: its due time plus its jitter.
"""

from typing import Final, NamedTuple, assert_never

from msgspec import Struct

from wheelsched.core.model import Lane, SkipReason
from wheelsched.core.policies.policy import MisfirePolicy, OnMisfire
from wheelsched.schedule.spec import Schedule

# A fast schedule with a long grace is armed in several steps: the next due time of such a decision
# is not in the future, so the timer is due again at once.
MAX_ON_TIME: Final = 1_000


class Fire(Struct, frozen=True, kw_only=True, gc=False):
    """Arm this run and dispatch it at `fire_at_us`, or at once if that has passed."""

    due_us: int
    fire_at_us: int
    lane: Lane


class Skip(Struct, frozen=True, kw_only=True, gc=False):
    """Record `count` due times, from `first_us` to `last_us`, as one skipped run at `last_us`."""

    reason: SkipReason  # of the last due time
    count: int
    first_us: int
    last_us: int


class Decision(Struct, frozen=True, kw_only=True, gc=False):
    """The result of arming a timer: the skip, the runs and the next due time."""

    skip: Skip | None
    fires: tuple[Fire, ...]  # ordered by due time
    next_due_us: int | None  # None: the schedule has ended


def decide(policy: MisfirePolicy, schedule: Schedule, due_us: int, now_us: int) -> Decision:
    """Decide about a timer that is set to `due_us`."""
    timeline = _Timeline(schedule, due_us)
    if due_us >= now_us:  # nearly always: armed ahead of its time
        fire = timeline.fire(due_us, Lane.ON_TIME)
        return Decision(skip=None, fires=(fire,), next_due_us=schedule.next_after(due_us))

    missed = _missed(policy, timeline, now_us)
    cursor_us = due_us if missed.last_us is None else schedule.next_after(missed.last_us)
    on_time: list[Fire] = []
    while cursor_us is not None and cursor_us <= now_us and len(on_time) < MAX_ON_TIME:
        on_time.append(timeline.fire(cursor_us, Lane.ON_TIME))
        cursor_us = schedule.next_after(cursor_us)
    return Decision(skip=missed.skip, fires=(*missed.fires, *on_time), next_due_us=cursor_us)


def skip_reason(
    policy: MisfirePolicy, schedule: Schedule, due_us: int, now_us: int
) -> SkipReason | None:
    """Why a run that was claimed but never sent is too late to fire; None if it may fire."""
    timeline = _Timeline(schedule, due_us)
    skip = _missed(policy, timeline, now_us).skip  # its range begins with this run
    if skip is None:
        return None
    past_window_us = timeline.last_planned_before(now_us - policy.window_us)
    return SkipReason.PAST_WINDOW if past_window_us is not None else _SKIP_REASONS[policy.policy]


class _Missed(NamedTuple):
    """The decision about the due times past their grace."""

    skip: Skip | None = None
    fires: tuple[Fire, ...] = ()
    last_us: int | None = None  # the latest of these due times


def _missed(policy: MisfirePolicy, timeline: "_Timeline", now_us: int) -> _Missed:
    last_us = timeline.last_planned_before(now_us - policy.grace_us)
    if last_us is None:
        return _Missed()
    past_window_us = timeline.last_planned_before(now_us - policy.window_us)
    caught_up, last_skipped_us = timeline.latest(
        _catch_up_limit(policy), until_us=last_us, after_us=past_window_us
    )
    return _Missed(
        skip=_skip(policy, timeline, last_skipped_us, past_window_us),
        fires=tuple([timeline.fire(due_us, Lane.LATE) for due_us in caught_up]),
        last_us=last_us,
    )


def _catch_up_limit(policy: MisfirePolicy) -> int:
    match policy.policy:
        case OnMisfire.SKIP:
            return 0
        case OnMisfire.ONCE:
            return 1
        case OnMisfire.ALL:
            return policy.max_missed
        case never:
            assert_never(never)


_SKIP_REASONS: Final = {
    OnMisfire.SKIP: SkipReason.MISFIRE_SKIP,
    OnMisfire.ONCE: SkipReason.SUPERSEDED,
    OnMisfire.ALL: SkipReason.MAX_MISSED,
}


def _skip(
    policy: MisfirePolicy, timeline: "_Timeline", last_us: int | None, past_window_us: int | None
) -> Skip | None:
    if last_us is None:
        return None
    is_past_window = past_window_us is not None and last_us <= past_window_us
    return Skip(
        reason=SkipReason.PAST_WINDOW if is_past_window else _SKIP_REASONS[policy.policy],
        count=timeline.count(last_us),
        first_us=timeline.first_us,
        last_us=last_us,
    )


class _Timeline(NamedTuple):
    """The due times from the timer's own on.

    The timer's own due time counts even if the schedule no longer contains it. Zone rules may have
    changed since it was set, and a due time is never dropped.
    """

    schedule: Schedule
    first_us: int

    def last_planned_before(self, instant_us: int) -> int | None:
        """The latest due time whose dispatch was planned before `instant_us`."""
        if self.first_us >= instant_us:
            return None
        last_us = self.schedule.last_before(instant_us)
        if last_us is None or last_us < self.first_us:
            last_us = self.first_us
        if self._planned_us(last_us) < instant_us:
            return last_us
        # Jitter ends before the next due time, so every earlier one was planned before.
        return self.previous(last_us)

    def previous(self, due_us: int) -> int | None:
        if due_us == self.first_us:
            return None
        previous_us = self.schedule.last_before(due_us)
        return self.first_us if previous_us is None else max(previous_us, self.first_us)

    def latest(
        self, limit: int, *, until_us: int, after_us: int | None
    ) -> tuple[list[int], int | None]:
        """The latest due times in (`after_us`, `until_us`], at most `limit`, oldest first.

        The second item is the due time before all of them, if any.
        """
        found: list[int] = []
        cursor_us: int | None = until_us
        while cursor_us is not None and len(found) < limit:
            if after_us is not None and cursor_us <= after_us:
                break
            found.append(cursor_us)
            cursor_us = self.previous(cursor_us)
        return found[::-1], cursor_us

    def count(self, last_us: int) -> int:
        """How many due times there are up to `last_us`."""
        return 1 + self.schedule.count(self.first_us, last_us)

    def fire(self, due_us: int, lane: Lane) -> Fire:
        return Fire(due_us=due_us, fire_at_us=self._planned_us(due_us), lane=lane)

    def _planned_us(self, due_us: int) -> int:
        return due_us + self.schedule.jitter_us(due_us)
