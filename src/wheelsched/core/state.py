"""The state machines of runs and jobs: one table of transitions each.

Invariant: a state changes only by a row of its table. A run leaves a final state only on a manual
`retry`, and never leaves `succeeded` or `skipped`. A run that a pause or an edit withdrew was never
sent: if its job becomes due at that time after all, another run replaces it.

`None` is the state before creation and after deletion. `running` is written only if the worker
responded 202. Any other attempt stays armed until it is settled, because a write at the moment of
firing would delay it. So firing is not an event, and everything that can happen to a running run
can happen to an armed one.

**A late response.** After a timeout the run is retrying, and the token of the attempt is still the
latest. Until the next attempt is armed with a newer token, the worker may still report the outcome.
Success ends the run and saves the next attempt, a rejection makes it dead, and a failure changes
nothing. After that the token is stale, which is checked before this table.

**Deleting a job** skips its armed runs (`SkipReason.DELETED`) and cancels those that wait for an
attempt. A running one may finish, and its outcome is the last entry of the job's history.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from wheelsched.core.model import JobState, RunState
from wheelsched.errors import IllegalMove


class RunEvent(StrEnum):
    ARM = "arm"  # a shard claims an attempt ahead of its time
    REQUEST = "request"  # a person requests a run: trigger or backfill
    ACCEPT = "accept"  # the worker responded 202
    SUCCEED = "succeed"  # the worker succeeded
    FAIL = "fail"  # the attempt failed and another follows
    DIE = "die"  # the last attempt failed
    SKIP = "skip"  # misfire, overlap, or its job was paused, edited or deleted
    CANCEL = "cancel"  # a person or the overlap policy cancels it
    RETRY = "retry"  # a person retries it
    ADOPT = "adopt"  # another shard becomes its owner


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
    (RunState.ARMED, RunEvent.ADOPT): RunState.ARMED,
    #
    (RunState.RUNNING, RunEvent.ACCEPT): RunState.RUNNING,
    (RunState.RUNNING, RunEvent.SUCCEED): RunState.SUCCEEDED,
    (RunState.RUNNING, RunEvent.FAIL): RunState.RETRYING,
    (RunState.RUNNING, RunEvent.DIE): RunState.DEAD,
    (RunState.RUNNING, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.RUNNING, RunEvent.ADOPT): RunState.RUNNING,
    #
    (RunState.RETRYING, RunEvent.ARM): RunState.ARMED,
    (RunState.RETRYING, RunEvent.SUCCEED): RunState.SUCCEEDED,
    (RunState.RETRYING, RunEvent.DIE): RunState.DEAD,
    (RunState.RETRYING, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.RETRYING, RunEvent.ADOPT): RunState.RETRYING,
    #
    (RunState.DEAD, RunEvent.RETRY): RunState.RETRYING,
    (RunState.CANCELLED, RunEvent.RETRY): RunState.RETRYING,
}

# A request or an outcome that is sent again because its response was lost must not fail. Its work
# is already done: the state stays, and nothing is written.
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
    WRITE = "write"  # a user's own transaction inserts it, unchecked
    PLAN = "plan"  # its shard accepts the document
    REFUSE = "refuse"  # its shard refuses the document
    EDIT = "edit"  # anything but its schedule
    RESCHEDULE = "reschedule"  # it gets a schedule with a future due time
    PAUSE = "pause"
    RESUME = "resume"
    GONE = "gone"  # a worker responded 410
    FINISH = "finish"  # the schedule has no further due time and its last run has ended
    DELETE = "delete"


# Pausing a paused job, resuming an active one and finishing a finished one are moves too, so that
# they can be replayed. Deleting a job again is an error: it does not exist.
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
    """The state of a run after an event. Raises `IllegalMove` if the table has no such row."""
    if state is not None and (state, event) in RUN_REPLAYS:
        return state
    try:
        return RUN_MOVES[state, event]
    except KeyError:
        raise _illegal("run", state, event) from None


def move_job(state: JobState | None, event: JobEvent) -> JobState | None:
    """The state of a job after an event, None if it is deleted. May raise `IllegalMove`."""
    try:
        return JOB_MOVES[state, event]
    except KeyError:
        raise _illegal("job", state, event) from None


def _illegal(noun: str, state: str | None, event: str) -> IllegalMove:
    described = f"that is {state}" if state else "that does not exist"
    return IllegalMove(
        f"the event '{event}' is not allowed for a {noun} {described}", state=state, event=event
    )
