"""Applies outcomes to runs, in memory.

Invariant: like on Postgres, a state changes only by the table of `core.state`.
"""

from msgspec.structs import replace

from wheelsched.core.model import FINAL_STATES, Attempt, Run, RunState
from wheelsched.core.outcome import Failed
from wheelsched.ports import Ending, Settled
from wheelsched.testing.tables import MemoryTables, RunRow
from wheelsched.values.sanitize import sanitize_status, sanitize_text

WITHOUT_ATTEMPT = (RunState.SKIPPED, RunState.CANCELLED)


def settle(tables: MemoryTables, row: RunRow, outcome: Settled) -> bool:
    """Write the outcome. Returns whether it changed anything."""
    before, ending = row.run, outcome.ending
    if not counts(before, ending):
        return False
    is_attempt = ending.is_attempt and ending.state not in WITHOUT_ATTEMPT
    makes_attempt = before.state is RunState.ARMED and is_attempt
    is_final = ending.state in FINAL_STATES
    row.run = replace(
        before,
        state=ending.state,
        attempt=before.attempt + makes_attempt,
        started_at_us=first(before.started_at_us, ending.started_at_us),
        lateness_us=first(before.lateness_us, ending.lateness_us),
        finished_at_us=ending.finished_at_us if is_final else None,
        http_status=sanitize_status(ending.http_status),
        error=sanitize_text(ending.error),
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
    """Whether an ending with the run's token can change the run in its current state."""
    match run.state:
        case RunState.ARMED:
            return True
        case RunState.RUNNING if ending.state is RunState.RUNNING:
            return ending.http_status is not None  # an accepted run is not handed over any more
        case RunState.RUNNING:
            return ending.state is not RunState.SKIPPED
        case RunState.RETRYING if ending.state is RunState.SUCCEEDED:
            return True
        case RunState.RETRYING:
            # After a manual retry, a replay of the old ending is ignored.
            ends = ending.state in (RunState.DEAD, RunState.CANCELLED)
            return ends and run.counted_attempt > 0
        case _:
            return False


def failed_attempt(run: Run, outcome: Settled) -> Attempt:
    """The history entry of an attempt that did not end its run."""
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
    """The value of the first attempt, which later ones do not change."""
    return now if before is None else before
