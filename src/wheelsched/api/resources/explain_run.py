"""Explains why a job did or did not fire at a given time.

Invariant: the recorded history takes precedence, then the job's state, then its schedule, so an
answer never guesses where there is a record.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from wheelsched.api.resources.run_answers import run_answer
from wheelsched.core.model import Job, JobState, Run, RunState, SkipReason
from wheelsched.jobs.describe import schedule_of
from wheelsched.wire.instant import instant, instant_or_none, instant_text
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
    SkipReason.PAST_WINDOW: "it was later than the misfire window",
    SkipReason.MISFIRE_SKIP: "it was later than the grace period, and the misfire policy is skip",
    SkipReason.SUPERSEDED: "it was later than the grace period, and a later run fired in its place",
    SkipReason.MAX_MISSED: "it was later than the grace period, and max_missed later runs fired",
    SkipReason.OVERLAP: "an earlier run of the job was unfinished, and the overlap policy is skip",
    SkipReason.QUEUE_FULL: "too many runs of the job were waiting",
    SkipReason.PAUSED: "the job was paused when the run was due",
    SkipReason.EDITED: "the schedule was changed before the run was due",
    SkipReason.DELETED: "the job was deleted before the run was due",
}
_NO_RECORD: Final = (
    "the job was due then, but there is no record: no shard has processed it yet, the job was "
    "paused, or the record is past its retention"
)


_LONG_HISTORY: Final = (
    "; only the first and the latest runs since then were searched, so a backfill of that time "
    "may have been missed"
)


def find_run(runs: Sequence[Run], at_us: int) -> Run | None:
    """The run that covers a time, if one of these does."""
    return next((run for run in runs if _covers(run, at_us)), None)


def explain_run(
    job: Job,
    run: Run | None,
    times_us: tuple[int, int],
    *,
    is_complete: bool = True,
    waiting_for: str | None = None,
) -> ExplainAnswer:
    """Explains a time as of now, from the run that covers it, if there is one.

    `times_us` are the time to explain and the current time. With `is_complete` false, an
    explanation without a run mentions that not all runs were searched.
    """
    at_us, now_us = times_us
    verdict, detail = _of_run(run) if run is not None else _of_job(job, at_us, now_us)
    if waiting_for is not None:
        detail += f", and for {waiting_for}"
    if run is None and not is_complete:
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
    """True if the run is for this time, or summarizes skipped times that include it."""
    if run.missed_since_us is not None:
        return run.missed_since_us <= at_us <= run.due_us
    return at_us in (run.due_us, run.scheduled_us)


def _of_run(run: Run) -> tuple[Verdict, str]:
    if run.skip_reason is not None:
        return Verdict.SKIPPED, f"skipped: {_REASONS[run.skip_reason]}"
    match run.state:
        case RunState.ARMED | RunState.RETRYING:
            detail = f"the run is waiting for attempt {run.attempt + 1}"
        case RunState.RUNNING:
            detail = f"attempt {run.attempt} is running"
        case RunState.SUCCEEDED:
            detail = f"the run fired, and attempt {run.attempt} succeeded"
        case RunState.DEAD:
            detail = f"the run fired and died with attempt {run.attempt}: {run.error}"
        case _:
            detail = f"the run was {run.state}"
    return _VERDICTS[run.state], detail


def _of_job(job: Job, at_us: int, now_us: int) -> tuple[Verdict, str]:
    if at_us < job.created_at_us:
        return Verdict.NOT_REGISTERED, f"the job was registered at {_shown(job.created_at_us)}"
    if job.state is JobState.PAUSED and job.paused_at_us is not None and at_us >= job.paused_at_us:
        return Verdict.PAUSED, f"the job has been paused since {_shown(job.paused_at_us)}"
    if at_us < job.anchor_us:
        return Verdict.EDITED, f"the job has had this schedule only since {_shown(job.anchor_us)}"
    if schedule_of(job).next_after(at_us - 1) != at_us:
        return Verdict.NOT_DUE, "the schedule has no due time then; see due_before and due_after"
    if at_us > now_us:
        return Verdict.NOT_YET, "the job is due then, in the future"
    return Verdict.UNKNOWN, _NO_RECORD


def _shown(instant_us: int) -> str:
    return instant_text(instant(instant_us))
