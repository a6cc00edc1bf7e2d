"""Jobs and runs as they go over the wire.

Invariant: what is written of a job, sent back as a patch, leaves it as it is. Values of sensitive
headers are masked in every answer.
"""

from collections.abc import Sequence
from functools import lru_cache

from msgspec import convert
from msgspec.structs import replace

from wheelsched.api.drafts import draft_answer
from wheelsched.core.compile import compile_schedule
from wheelsched.core.dialects import dialect_warnings
from wheelsched.core.duration import MILLISECOND, format_duration
from wheelsched.core.model import Attempt, Draft, Job, JobState, Run, RunKey, format_run_id
from wheelsched.core.outcome import told
from wheelsched.core.policy import MisfirePolicy, OverlapPolicy, RetryPolicy
from wheelsched.core.sensitive import mask_headers
from wheelsched.core.spec import Schedule
from wheelsched.core.written import Policies, write_policies
from wheelsched.wire.instant import instant, instant_or_none
from wheelsched.wire.job import (
    DstDocument,
    JobAnswer,
    JobDocument,
    MisfireDocument,
    OverlapDocument,
    RetryDocument,
    TargetDocument,
)
from wheelsched.wire.run import AttemptAnswer, RunAnswer


def schedule_of(job: Job) -> Schedule:
    """The due times of a job."""
    return compile_schedule(job.spec, job.job_id, job.anchor_us)


def job_answer(job: Job | Draft, now_us: int, too_late: Sequence[RunKey] = ()) -> JobAnswer:
    """A job with its coming due time, and the runs that a change was too late for."""
    if isinstance(job, Draft):
        return draft_answer(job)
    spec, target = job.spec, job.target
    coming_us = schedule_of(job).next_after(now_us) if job.state is JobState.ACTIVE else None
    return JobAnswer(
        job_id=job.job_id,
        name=job.name,
        state=job.state,
        schedule=job.schedule,
        timezone=spec.timezone,
        target=TargetDocument(
            url=target.url,
            method=target.method,
            headers=mask_headers(target.headers),
            batch=target.batch,
        ),
        payload=job.payload,
        misfire=_misfire_document(job.misfire),
        overlap=_overlap_document(job.overlap),
        retry=_retry_document(job.retry),
        timeout=_duration(job.timeout_us),
        jitter=_duration(spec.jitter_us),
        priority=job.priority,
        dst=_dst_document(spec.dst_gap, spec.dst_overlap),
        idempotency_key=job.idempotency_key,
        tags=job.tags,
        version=job.version,
        created_at=instant(job.created_at_us),
        updated_at=instant(job.updated_at_us),
        paused_at=instant_or_none(job.paused_at_us),
        next_run_at=instant_or_none(coming_us),
        too_late=tuple(map(format_run_id, too_late)),
        warnings=dialect_warnings(job.spec),
    )


def document_of(job: Job) -> JobDocument:
    """The document of a job, with every default written out and no value masked."""
    spec = job.spec
    return JobDocument(
        name=job.name,
        schedule=job.schedule,
        target=TargetDocument(
            url=job.target.url,
            method=job.target.method,
            headers=job.target.headers,
            batch=job.target.batch,
        ),
        timezone=spec.timezone,
        payload=job.payload,
        misfire=_misfire_document(job.misfire),
        overlap=_overlap_document(job.overlap),
        retry=_retry_document(job.retry),
        timeout=_duration(job.timeout_us),
        jitter=_duration(spec.jitter_us),
        priority=job.priority,
        dst=_dst_document(spec.dst_gap, spec.dst_overlap),
        idempotency_key=job.idempotency_key,
        tags=job.tags,
    )


def masked_document_of(job: Job) -> JobDocument:
    """The same as readers see it: a patch that does not name a header keeps it as its mask does."""
    document = document_of(job)
    target = replace(document.target, headers=mask_headers(job.target.headers))
    return replace(document, target=target)


# Jobs differ, and their policies seldom do: a page of a hundred has a few.
_shared = lru_cache(maxsize=1_024)
_duration = _shared(format_duration)
_dst_document = _shared(lambda gap, overlap: DstDocument(gap=gap, overlap=overlap))


@_shared
def _misfire_document(misfire: MisfirePolicy) -> MisfireDocument:
    return convert(write_policies(Policies(misfire=misfire))["misfire"], MisfireDocument)


@_shared
def _overlap_document(overlap: OverlapPolicy) -> OverlapDocument:
    return convert(write_policies(Policies(overlap=overlap))["overlap"], OverlapDocument)


@_shared
def _retry_document(retry: RetryPolicy) -> RetryDocument:
    return convert(write_policies(Policies(retry=retry))["retry"], RetryDocument)


def run_answer(run: Run, attempts: Sequence[Attempt] | None = None) -> RunAnswer:
    """A run; with its attempts, the last of which is in the run itself, where they were asked."""
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
    written = [_attempt_answer(attempt) for attempt in attempts]
    if run.attempt > len(written):
        written.append(_last_attempt(run, is_first=not written))
    return written


def _attempt_answer(attempt: Attempt) -> AttemptAnswer:
    http_status, error = (None, None) if attempt.outcome is None else told(attempt.outcome)
    return AttemptAnswer(
        attempt=attempt.attempt,
        token=attempt.token,
        shard=attempt.shard,
        started_at=instant_or_none(attempt.started_at_us),
        finished_at=instant_or_none(attempt.finished_at_us),
        http_status=http_status,
        error=error,
    )


def _last_attempt(run: Run, *, is_first: bool) -> AttemptAnswer:
    """The attempt that ended the run, or has not ended: the run itself says what is known of it."""
    return AttemptAnswer(
        attempt=run.attempt,
        token=run.token,
        shard=run.shard,
        started_at=instant_or_none(run.started_at_us) if is_first else None,
        finished_at=instant_or_none(run.finished_at_us),
        http_status=run.http_status,
        error=run.error,
    )
