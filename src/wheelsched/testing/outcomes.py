"""Stage *settle*, in memory: what an outcome with the run's token makes of the run.

Invariant: as on Postgres, a state changes by the table of `core.state` and by nothing else.
"""

from msgspec.structs import replace

from wheelsched.core.model import FINAL_STATES, Attempt, Run, RunState
from wheelsched.core.outcome import Failed
from wheelsched.core.storable import storable_status, storable_text
from wheelsched.ports import Ending, Settled
from wheelsched.testing.tables import MemoryTables, RunRow

WITHOUT_ATTEMPT = (RunState.SKIPPED, RunState.CANCELLED)


def settle(tables: MemoryTables, row: RunRow, outcome: Settled) -> bool:
    """Writes the outcome, and gives whether it changed anything."""
    before, ending = row.run, outcome.ending
    if not counts(before, ending):
        return False
    makes_attempt = before.state is RunState.ARMED and ending.state not in WITHOUT_ATTEMPT
    is_final = ending.state in FINAL_STATES
    row.run = replace(
        before,
        state=ending.state,
        attempt=before.attempt + makes_attempt,
        started_at_us=first(before.started_at_us, ending.started_at_us),
        lateness_us=first(before.lateness_us, ending.lateness_us),
        finished_at_us=ending.finished_at_us if is_final else None,
        http_status=storable_status(ending.http_status),
        error=storable_text(ending.error),
        retry_at_us=ending.retry_at_us,
        skip_reason=ending.skip_reason,
    )
    if is_final:
        tables.retries.pop(outcome.key, None)
        return True
    is_waiting = ending.state is RunState.RETRYING
    row.had_retry = True
    tables.retries[outcome.key] = ending.retry_at_us if is_waiting else None
    if is_waiting:
        tables.attempts[outcome.key, outcome.token] = failed_attempt(row.run, outcome)
    return True


def counts(run: Run, ending: Ending) -> bool:
    """Whether an attempt with the run's token finds it in a state that its ending can change."""
    match run.state:
        case RunState.ARMED:
            return True
        case RunState.RUNNING if ending.state is RunState.RUNNING:
            return ending.http_status is not None  # what was accepted is not handed over any more
        case RunState.RUNNING:
            return ending.state is not RunState.SKIPPED
        case RunState.RETRYING if ending.state is RunState.SUCCEEDED:
            return True
        case RunState.RETRYING:
            # The end that a person has asked to try again does not come back.
            ends = ending.state in (RunState.DEAD, RunState.CANCELLED)
            return ends and run.counted_attempt > 0
        case _:
            return False


def failed_attempt(run: Run, outcome: Settled) -> Attempt:
    """What the history keeps of an attempt that did not end its run."""
    assert run.shard
    return Attempt(
        job_id=run.job_id,
        due_us=run.due_us,
        attempt=run.attempt,
        token=outcome.token,
        shard=run.shard,
        started_at_us=outcome.ending.started_at_us,
        finished_at_us=outcome.ending.finished_at_us,
        outcome=Failed(error=run.error or "", http_status=run.http_status),
    )


def first(before: int | None, now: int | None) -> int | None:
    """What the first attempt wrote stays."""
    return now if before is None else before
