"""The states of runs and jobs, and the events that move them: one table each.

Invariant: a state changes only by a row of its table. A final state of a run is left only when
a person asks for it (`retry`), and `succeeded` and `skipped` never are. But a run that a pause or
an edit withdrew was never sent: when its job is due at that time after all, another takes its
place.

`None` is the state of what does not exist. `running` is written only for a worker that answered
202: any other attempt is armed until it is settled, because a write at the moment of firing would
cost the moment. So firing is no event, and whatever can happen to a running run can happen to an
armed one.

**A late answer.** An attempt that timed out leaves its run retrying, with the attempt's token
still the latest. Until another attempt is armed, and brings a newer token, that worker may still
say how it ended: success ends the run and saves the next attempt, a rejection kills it, and a
failure says nothing new. After that its token is stale, which is checked before this table.

**Deleting a job** skips its armed runs (`SkipReason.DELETED`) and cancels those that wait for an
attempt. A running one may end, and its outcome is the last of the job's history.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from wheelsched.core.model import JobState, RunState
from wheelsched.errors import IllegalMove


class RunEvent(StrEnum):
    ARM = "arm"  # a shard claims it ahead of its time, the first or a further one
    REQUEST = "request"  # a person asks for a run: trigger or backfill
    ACCEPT = "accept"  # the worker answers 202
    SUCCEED = "succeed"  # the worker did it
    FAIL = "fail"  # the attempt failed and another follows
    DIE = "die"  # the attempt failed and was the last
    SKIP = "skip"  # misfire, overlap, or its job was paused, edited or deleted
    CANCEL = "cancel"  # a person, or overlap, ends it
    RETRY = "retry"  # a person wants it tried again
    TAKE_OVER = "take_over"  # another shard becomes its owner


RUN_MOVES: Final[Mapping[tuple[RunState | None, RunEvent], RunState]] = {
    (None, RunEvent.ARM): RunState.ARMED,
    (None, RunEvent.SKIP): RunState.SKIPPED,
    (None, RunEvent.REQUEST): RunState.RETRYING,
    #
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
    (RunState.RETRYING, RunEvent.SUCCEED): RunState.SUCCEEDED,
    (RunState.RETRYING, RunEvent.DIE): RunState.DEAD,
    (RunState.RETRYING, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.RETRYING, RunEvent.TAKE_OVER): RunState.RETRYING,
    #
    (RunState.DEAD, RunEvent.RETRY): RunState.RETRYING,
    (RunState.CANCELLED, RunEvent.RETRY): RunState.RETRYING,
}

# A request or an outcome that is sent again because its answer was lost must not come back as an
# error. These find their work done: the state stays, and nothing is written.
RUN_REPLAYS: Final = frozenset(
    {
        (RunState.ARMED, RunEvent.RETRY),
        (RunState.RUNNING, RunEvent.RETRY),
        (RunState.RETRYING, RunEvent.RETRY),
        (RunState.RETRYING, RunEvent.FAIL),
        (RunState.SUCCEEDED, RunEvent.SUCCEED),
        (RunState.DEAD, RunEvent.DIE),
        (RunState.CANCELLED, RunEvent.CANCEL),
    }
)


class JobEvent(StrEnum):
    REGISTER = "register"
    WRITE = "write"  # a user's own transaction has it, and nobody has judged it
    PLAN = "plan"  # its shard accepts what was written
    REFUSE = "refuse"  # or does not
    EDIT = "edit"  # anything but its schedule
    RESCHEDULE = "reschedule"  # it gets a schedule that has a future
    PAUSE = "pause"
    RESUME = "resume"
    GONE = "gone"  # a worker answered 410
    FINISH = "finish"  # the schedule has no further due time and its last run has ended
    DELETE = "delete"


# Pausing what is paused, resuming what is active and finishing what is finished are moves too,
# for the sake of replays. Who deletes again is told that there is no such job.
JOB_MOVES: Final[Mapping[tuple[JobState | None, JobEvent], JobState | None]] = {
    (None, JobEvent.REGISTER): JobState.ACTIVE,
    (None, JobEvent.WRITE): JobState.UNPLANNED,
    #
    (JobState.UNPLANNED, JobEvent.PLAN): JobState.ACTIVE,
    (JobState.UNPLANNED, JobEvent.REFUSE): JobState.REFUSED,
    (JobState.UNPLANNED, JobEvent.DELETE): None,
    (JobState.REFUSED, JobEvent.DELETE): None,
    #
    (JobState.ACTIVE, JobEvent.EDIT): JobState.ACTIVE,
    (JobState.ACTIVE, JobEvent.RESCHEDULE): JobState.ACTIVE,
    (JobState.ACTIVE, JobEvent.PAUSE): JobState.PAUSED,
    (JobState.ACTIVE, JobEvent.RESUME): JobState.ACTIVE,
    (JobState.ACTIVE, JobEvent.GONE): JobState.PAUSED,
    (JobState.ACTIVE, JobEvent.FINISH): JobState.FINISHED,
    (JobState.ACTIVE, JobEvent.DELETE): None,
    #
    (JobState.PAUSED, JobEvent.EDIT): JobState.PAUSED,
    (JobState.PAUSED, JobEvent.RESCHEDULE): JobState.PAUSED,
    (JobState.PAUSED, JobEvent.PAUSE): JobState.PAUSED,
    (JobState.PAUSED, JobEvent.RESUME): JobState.ACTIVE,
    (JobState.PAUSED, JobEvent.GONE): JobState.PAUSED,
    (JobState.PAUSED, JobEvent.FINISH): JobState.FINISHED,
    (JobState.PAUSED, JobEvent.DELETE): None,
    #
    (JobState.FINISHED, JobEvent.EDIT): JobState.FINISHED,
    (JobState.FINISHED, JobEvent.RESCHEDULE): JobState.ACTIVE,
    (JobState.FINISHED, JobEvent.GONE): JobState.FINISHED,
    (JobState.FINISHED, JobEvent.FINISH): JobState.FINISHED,
    (JobState.FINISHED, JobEvent.DELETE): None,
}


def move_run(state: RunState | None, event: RunEvent) -> RunState:
    """The state of a run after an event, or `IllegalMove`."""
    if state is not None and (state, event) in RUN_REPLAYS:
        return state
    try:
        return RUN_MOVES[state, event]
    except KeyError:
        raise _illegal("run", state, event) from None


def move_job(state: JobState | None, event: JobEvent) -> JobState | None:
    """The state of a job after an event, None when it is deleted, or `IllegalMove`."""
    try:
        return JOB_MOVES[state, event]
    except KeyError:
        raise _illegal("job", state, event) from None


def _illegal(noun: str, state: str | None, event: str) -> IllegalMove:
    described = f"that is {state}" if state else "that does not exist"
    return IllegalMove(
        f"a {noun} {described} cannot meet the event '{event}'", state=state, event=event
    )
