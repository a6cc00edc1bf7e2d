"""The states of runs and jobs, and the events that move them: one table each.

Invariant: a state changes only by a row of its table. A final state of a run is left only when
a person asks for it (`retry`), and `succeeded` and `skipped` never are.

`None` is the state of what does not exist yet. `running` is written only for a worker that
answered 202: any other attempt is armed until it is settled, because a write at the moment of
firing would cost the moment. So whatever can happen to a running run can happen to an armed one.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from wheelsched.core.model import JobState, RunState
from wheelsched.errors import IllegalMove


class RunEvent(StrEnum):
    ARM = "arm"  # a shard claims it ahead of its time, the first or a further one
    REQUEST = "request"  # a person asks for a run: trigger or backfill
    FIRE = "fire"  # it is dispatched
    ACCEPT = "accept"  # the worker answers 202
    SUCCEED = "succeed"  # the worker did it
    FAIL = "fail"  # the attempt failed and another follows
    DIE = "die"  # the attempt failed and was the last
    SKIP = "skip"  # misfire, overlap, pause or edit
    CANCEL = "cancel"  # a person, or overlap, ends it
    RETRY = "retry"  # a person wants it tried again
    TAKE_OVER = "take_over"  # another shard becomes its owner


RUN_MOVES: Final[Mapping[tuple[RunState | None, RunEvent], RunState]] = {
    (None, RunEvent.ARM): RunState.ARMED,
    (None, RunEvent.SKIP): RunState.SKIPPED,
    (None, RunEvent.REQUEST): RunState.RETRYING,
    #
    (RunState.ARMED, RunEvent.FIRE): RunState.RUNNING,
    (RunState.ARMED, RunEvent.ACCEPT): RunState.RUNNING,
    (RunState.ARMED, RunEvent.SUCCEED): RunState.SUCCEEDED,
    (RunState.ARMED, RunEvent.FAIL): RunState.RETRYING,
    (RunState.ARMED, RunEvent.DIE): RunState.DEAD,
    (RunState.ARMED, RunEvent.SKIP): RunState.SKIPPED,
    (RunState.ARMED, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.ARMED, RunEvent.TAKE_OVER): RunState.ARMED,
    #
    (RunState.RUNNING, RunEvent.ACCEPT): RunState.RUNNING,
    (RunState.RUNNING, RunEvent.SUCCEED): RunState.SUCCEEDED,
    (RunState.RUNNING, RunEvent.FAIL): RunState.RETRYING,
    (RunState.RUNNING, RunEvent.DIE): RunState.DEAD,
    (RunState.RUNNING, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.RUNNING, RunEvent.TAKE_OVER): RunState.RUNNING,
    #
    (RunState.RETRYING, RunEvent.ARM): RunState.ARMED,
    (RunState.RETRYING, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.RETRYING, RunEvent.TAKE_OVER): RunState.RETRYING,
    #
    (RunState.DEAD, RunEvent.RETRY): RunState.RETRYING,
    (RunState.CANCELLED, RunEvent.RETRY): RunState.RETRYING,
}


class JobEvent(StrEnum):
    REGISTER = "register"
    EDIT = "edit"  # anything but its schedule
    RESCHEDULE = "reschedule"  # it gets a schedule that has a future
    PAUSE = "pause"
    RESUME = "resume"
    GONE = "gone"  # a worker answered 410
    FINISH = "finish"  # the schedule has no further due time and its last run has ended


# Pausing what is paused, resuming what is active and finishing what is finished are moves too:
# a request that is sent again because its answer was lost must not come back as an error.
JOB_MOVES: Final[Mapping[tuple[JobState | None, JobEvent], JobState]] = {
    (None, JobEvent.REGISTER): JobState.ACTIVE,
    #
    (JobState.ACTIVE, JobEvent.EDIT): JobState.ACTIVE,
    (JobState.ACTIVE, JobEvent.RESCHEDULE): JobState.ACTIVE,
    (JobState.ACTIVE, JobEvent.PAUSE): JobState.PAUSED,
    (JobState.ACTIVE, JobEvent.RESUME): JobState.ACTIVE,
    (JobState.ACTIVE, JobEvent.GONE): JobState.PAUSED,
    (JobState.ACTIVE, JobEvent.FINISH): JobState.FINISHED,
    #
    (JobState.PAUSED, JobEvent.EDIT): JobState.PAUSED,
    (JobState.PAUSED, JobEvent.RESCHEDULE): JobState.PAUSED,
    (JobState.PAUSED, JobEvent.PAUSE): JobState.PAUSED,
    (JobState.PAUSED, JobEvent.RESUME): JobState.ACTIVE,
    (JobState.PAUSED, JobEvent.GONE): JobState.PAUSED,
    (JobState.PAUSED, JobEvent.FINISH): JobState.FINISHED,
    #
    (JobState.FINISHED, JobEvent.EDIT): JobState.FINISHED,
    (JobState.FINISHED, JobEvent.RESCHEDULE): JobState.ACTIVE,
    (JobState.FINISHED, JobEvent.GONE): JobState.FINISHED,
    (JobState.FINISHED, JobEvent.FINISH): JobState.FINISHED,
}


def move_run(state: RunState | None, event: RunEvent) -> RunState:
    """The state of a run after an event, or `IllegalMove`."""
    try:
        return RUN_MOVES[state, event]
    except KeyError:
        raise _illegal("run", state, event) from None


def move_job(state: JobState | None, event: JobEvent) -> JobState:
    """The state of a job after an event, or `IllegalMove`."""
    try:
        return JOB_MOVES[state, event]
    except KeyError:
        raise _illegal("job", state, event) from None


def run_states_before(event: RunEvent) -> frozenset[RunState]:
    """The states in which a run may meet an event: what a compare-and-set asks for."""
    return frozenset(state for state, moved_by in RUN_MOVES if moved_by is event and state)


def _illegal(noun: str, state: str | None, event: str) -> IllegalMove:
    described = f"that is {state}" if state else "that does not exist"
    return IllegalMove(
        f"a {noun} {described} cannot meet the event '{event}'", state=state, event=event
    )
