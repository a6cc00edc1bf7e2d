"""All combinations of states and events: an independent table against the one in the source."""

import pytest

from wheelsched.core.model import (
    FINAL_STATES,
    UNFINISHED_STATES,
    JobState,
    RunState,
    SkipReason,
)
from wheelsched.core.state import (
    RUN_MOVES,
    RUN_REPLAYS,
    JobEvent,
    RunEvent,
    move_job,
    move_run,
)
from wheelsched.errors import IllegalMove

# A column per state, in this order; "." is an illegal move.
RUN_COLUMNS = (
    None,
    RunState.ARMED,
    RunState.RUNNING,
    RunState.RETRYING,
    RunState.SUCCEEDED,
    RunState.DEAD,
    RunState.SKIPPED,
    RunState.CANCELLED,
)
RUN_TABLE = """
event      (none)    armed      running    retrying   succeeded  dead      skipped  cancelled
arm        armed     .          .          armed      .          .         .        .
request    retrying  .          .          .          .          .         .        .
accept     .         running    running    .          .          .         .        .
succeed    .         succeeded  succeeded  succeeded  succeeded  .         .        .
fail       .         retrying   retrying   retrying   .          .         .        .
die        .         dead       dead       dead       .          dead      .        .
skip       skipped   skipped    .          .          .          .         .        .
cancel     .         cancelled  cancelled  cancelled  .          .         .        cancelled
retry      .         armed      running    retrying   .          retrying  .        retrying
adopt      .         armed      running    retrying   .          .         .        .
"""

JOB_COLUMNS = (
    None,
    JobState.ACTIVE,
    JobState.PAUSED,
    JobState.FINISHED,
    JobState.UNPLANNED,
    JobState.REFUSED,
)
JOB_TABLE = """
event       (none)     active    paused    finished  unplanned  refused
register    active     .         .         .         .          .
write       unplanned  .         .         .         .          .
plan        .          .         .         .         active     .
refuse      .          .         .         .         refused    .
edit        .          active    paused    finished  .          .
reschedule  .          active    paused    active    .          .
pause       .          paused    paused    .         .          .
resume      .          active    active    .         .          .
gone        .          paused    paused    finished  .          .
finish      .          finished  finished  finished  .          .
delete      .          (none)    (none)    (none)    (none)     (none)
"""


def cells(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()[1:]]


RUN_CASES = [
    (state, RunEvent(event), outcome)
    for event, *outcomes in cells(RUN_TABLE)
    for state, outcome in zip(RUN_COLUMNS, outcomes, strict=True)
]
JOB_CASES = [
    (state, JobEvent(event), outcome)
    for event, *outcomes in cells(JOB_TABLE)
    for state, outcome in zip(JOB_COLUMNS, outcomes, strict=True)
]


def test_the_tables_here_hold_every_state_and_event() -> None:
    assert len(RUN_CASES) == (len(RunState) + 1) * len(RunEvent)
    assert len(JOB_CASES) == (len(JobState) + 1) * len(JobEvent)


@pytest.mark.parametrize(("state", "event", "outcome"), RUN_CASES)
def test_every_event_in_every_state_of_a_run(
    state: RunState | None, event: RunEvent, outcome: str
) -> None:
    if outcome == ".":
        with pytest.raises(IllegalMove) as caught:
            move_run(state, event)
        assert (caught.value.state, caught.value.event) == (state, event)
    else:
        assert move_run(state, event) is RunState(outcome)


@pytest.mark.parametrize(("state", "event", "outcome"), JOB_CASES)
def test_every_event_in_every_state_of_a_job(
    state: JobState | None, event: JobEvent, outcome: str
) -> None:
    if outcome == ".":
        with pytest.raises(IllegalMove) as caught:
            move_job(state, event)
        assert (caught.value.state, caught.value.event) == (state, event)
    else:
        assert move_job(state, event) is (None if outcome == "(none)" else JobState(outcome))


def test_an_illegal_move_names_the_state_and_the_event() -> None:
    with pytest.raises(IllegalMove, match="'arm' is not allowed for a run that is succeeded"):
        move_run(RunState.SUCCEEDED, RunEvent.ARM)
    with pytest.raises(IllegalMove, match=r"'pause' is not allowed for a job that does not exist"):
        move_job(None, JobEvent.PAUSE)


def states_before(event: RunEvent) -> set[RunState]:
    """The states that an event changes. A replay changes none."""
    return {state for state, moved_by in RUN_MOVES if moved_by is event and state}


def test_only_a_person_takes_a_run_out_of_a_final_state() -> None:
    for event in set(RunEvent) - {RunEvent.RETRY}:
        assert not states_before(event) & FINAL_STATES
    assert states_before(RunEvent.RETRY) == {RunState.DEAD, RunState.CANCELLED}


def test_every_unfinished_run_can_be_cancelled_and_taken_over() -> None:
    assert states_before(RunEvent.CANCEL) == UNFINISHED_STATES
    assert states_before(RunEvent.ADOPT) == UNFINISHED_STATES


def test_a_replay_is_allowed_and_writes_nothing() -> None:
    for state, event in RUN_REPLAYS:
        assert move_run(state, event) is state
        assert state not in states_before(event)


def test_running_is_written_for_a_worker_that_accepted_and_for_nothing_else() -> None:
    into_running = {event for (_, event), state in RUN_MOVES.items() if state is RunState.RUNNING}
    assert into_running == {RunEvent.ACCEPT, RunEvent.ADOPT}


def test_a_late_answer_counts_until_another_attempt_is_armed() -> None:
    """The token of the timed-out attempt is still the latest, so its success ends the run."""
    timed_out = move_run(RunState.RUNNING, RunEvent.FAIL)
    assert move_run(timed_out, RunEvent.SUCCEED) is RunState.SUCCEEDED
    assert move_run(timed_out, RunEvent.DIE) is RunState.DEAD
    assert move_run(timed_out, RunEvent.FAIL) is timed_out
    assert RunState.RETRYING not in states_before(RunEvent.FAIL)
    with pytest.raises(IllegalMove):
        move_run(move_run(timed_out, RunEvent.SUCCEED), RunEvent.ARM)


def test_the_runs_of_a_deleted_job_end_with_a_reason() -> None:
    assert move_job(JobState.ACTIVE, JobEvent.DELETE) is None
    assert move_run(RunState.ARMED, RunEvent.SKIP) is RunState.SKIPPED
    assert SkipReason("deleted") is SkipReason.DELETED
