"""The inquiry: why did a job, or did it not, fire at a time?

Invariant: what the history says comes first, then what the job says of itself, and the schedule
last; so that an answer never guesses where something was written down.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from wheelsched.api.answers import run_answer, schedule_of
from wheelsched.core.model import Job, JobState, Run, RunState, SkipReason
from wheelsched.wire.instant import instant, instant_or_none
from wheelsched.wire.schedule import ExplainAnswer, Verdict

_VERDICTS: Final = {
    RunState.ARMED: Verdict.WAITING,
    RunState.RETRYING: Verdict.WAITING,
    RunState.RUNNING: Verdict.FIRED,
    RunState.SUCCEEDED: Verdict.FIRED,
    RunState.DEAD: Verdict.FIRED,
    RunState.SKIPPED: Verdict.SKIPPED,
    RunState.CANCELLED: Verdict.CANCELLED,
}

_REASONS: Final = {
    SkipReason.PAST_WINDOW: "it was older than the misfire window when a shard came to it",
    SkipReason.MISFIRE_SKIP: "it was past its grace, and the misfire policy is to skip",
    SkipReason.SUPERSEDED: "it was past its grace, and a later due time fired for it",
    SkipReason.MAX_MISSED: "it was past its grace, and max_missed later ones fired",
    SkipReason.OVERLAP: "an earlier run of the job was unfinished, and the overlap policy is skip",
    SkipReason.QUEUE_FULL: "too many runs of the job were waiting",
    SkipReason.PAUSED: "the job was paused when it came due",
    SkipReason.EDITED: "the job got another schedule before it came due",
    SkipReason.DELETED: "the job was deleted before it came due",
}
_NOTHING_WRITTEN: Final = (
    "it was due then, and the history has nothing of it: a shard has not come to it yet, the job "
    "was paused then, or its day is past the retention"
)


_LONG_HISTORY: Final = (
    "; of its runs since then only the first and the latest were looked at, so that a backfill of "
    "that time may be among the others"
)


def find_run(runs: Sequence[Run], at_us: int) -> Run | None:
    """The run that accounts for a time, if one of these does."""
    return next((run for run in runs if _covers(run, at_us)), None)


def inquire(
    job: Job,
    run: Run | None,
    times_us: tuple[int, int],
    *,
    is_whole: bool = True,
    waiting_for: str | None = None,
) -> ExplainAnswer:
    """The verdict about a time, as of another, from the run that accounts for it, if there is one.

    Unless the whole history since then was searched for it, a verdict without one says so.
    """
    at_us, now_us = times_us
    verdict, detail = _of_run(run) if run is not None else _of_job(job, at_us, now_us)
    if waiting_for is not None:
        detail += f"; waiting: {waiting_for}"
    if run is None and not is_whole:
        detail += _LONG_HISTORY
    schedule = schedule_of(job)
    return ExplainAnswer(
        job_id=job.job_id,
        at=instant(at_us),
        verdict=verdict,
        detail=detail,
        run=None if run is None else replace(run_answer(run), waiting_for=waiting_for),
        due_before=instant_or_none(schedule.last_before(at_us)),
        due_after=instant_or_none(schedule.next_after(at_us)),
    )


def _covers(run: Run, at_us: int) -> bool:
    """Whether a run is of that time, or a summary of skipped times that has it among them."""
    if run.missed_since_us is not None:
        return run.missed_since_us <= at_us <= run.due_us
    return at_us in (run.due_us, run.scheduled_us)


def _of_run(run: Run) -> tuple[Verdict, str]:
    if run.skip_reason is not None:
        return Verdict.SKIPPED, f"skipped: {_REASONS[run.skip_reason]}"
    match run.state:
        case RunState.ARMED | RunState.RETRYING:
            detail = f"there is a run, which waits for attempt {run.attempt + 1}"
        case RunState.RUNNING:
            detail = f"attempt {run.attempt} is running"
        case RunState.SUCCEEDED:
            detail = f"it fired, and attempt {run.attempt} succeeded"
        case RunState.DEAD:
            detail = f"it fired, and failed for good with attempt {run.attempt}: {run.error}"
        case _:
            detail = f"the run was {run.state}"
    return _VERDICTS[run.state], detail


def _of_job(job: Job, at_us: int, now_us: int) -> tuple[Verdict, str]:
    if at_us < job.created_at_us:
        return Verdict.NOT_REGISTERED, f"the job was registered at {_shown(job.created_at_us)}"
    if job.state is JobState.PAUSED and job.paused_at_us is not None and at_us >= job.paused_at_us:
        return Verdict.PAUSED, f"the job is paused since {_shown(job.paused_at_us)}"
    if at_us < job.anchor_us:
        return Verdict.EDITED, f"the job has this schedule since {_shown(job.anchor_us)}"
    if schedule_of(job).next_after(at_us - 1) != at_us:
        return Verdict.NOT_DUE, "the schedule has no due time then; see due_before and due_after"
    if at_us > now_us:
        return Verdict.NOT_YET, "it is due then, which is still to come"
    return Verdict.UNKNOWN, _NOTHING_WRITTEN


def _shown(instant_us: int) -> str:
    return instant(instant_us).isoformat()
