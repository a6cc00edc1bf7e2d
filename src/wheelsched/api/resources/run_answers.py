"""Runs and their attempts as API responses."""

from collections.abc import Sequence

from wheelsched.core.model import Attempt, Run
from wheelsched.core.outcome import status_and_error
from wheelsched.values.duration import MILLISECOND
from wheelsched.wire.instant import instant, instant_or_none
from wheelsched.wire.run import AttemptAnswer, RunAnswer


def run_answer(run: Run, attempts: Sequence[Attempt] | None = None) -> RunAnswer:
    """A run, with its attempts if they are given. The latest attempt is part of the run's row."""
    return RunAnswer(
        run_id=run.run_id,
        job_id=run.job_id,
        scheduled_at=instant(run.scheduled_us),
        due_at=instant(run.due_us),
        state=run.state,
        trigger=run.trigger,
        attempt=run.attempt,
        retry_at=instant_or_none(run.retry_at_us),
        armed_at=instant_or_none(run.armed_at_us),
        started_at=instant_or_none(run.started_at_us),
        finished_at=instant_or_none(run.finished_at_us),
        lateness_ms=None if run.lateness_us is None else run.lateness_us / MILLISECOND,
        http_status=run.http_status,
        error=run.error,
        skip_reason=run.skip_reason,
        missed_count=run.missed_count,
        missed_since=instant_or_none(run.missed_since_us),
        shard=run.shard,
        token=run.token,
        attempts=None if attempts is None else tuple(_attempt_answers(run, attempts)),
    )


def _attempt_answers(run: Run, attempts: Sequence[Attempt]) -> list[AttemptAnswer]:
    answers = [_attempt_answer(attempt) for attempt in attempts]
    if run.attempt > len(answers):
        answers.append(_latest_attempt(run, is_first=not answers))
    return answers


def _attempt_answer(attempt: Attempt) -> AttemptAnswer:
    http_status, error = (
        (None, None) if attempt.outcome is None else status_and_error(attempt.outcome)
    )
    return AttemptAnswer(
        attempt=attempt.attempt,
        token=attempt.token,
        shard=attempt.shard,
        started_at=instant_or_none(attempt.started_at_us),
        finished_at=instant_or_none(attempt.finished_at_us),
        http_status=http_status,
        error=error,
    )


def _latest_attempt(run: Run, *, is_first: bool) -> AttemptAnswer:
    """The attempt that ended the run or is in progress, which is stored in the run's row."""
    return AttemptAnswer(
        attempt=run.attempt,
        token=run.token,
        shard=run.shard,
        started_at=instant_or_none(run.started_at_us) if is_first else None,
        finished_at=instant_or_none(run.finished_at_us),
        http_status=run.http_status,
        error=run.error,
    )
