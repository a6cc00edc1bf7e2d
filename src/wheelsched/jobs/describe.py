"""Jobs as documents and as answers of the API.

Invariant: the document of a job, sent back as a patch, leaves the job unchanged. Values of
sensitive headers are masked in every answer.
"""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from wheelsched.core.model import Draft, Job, JobState, RunKey, format_run_id
from wheelsched.jobs.drafts import draft_answer
from wheelsched.jobs.fields import FIELDS
from wheelsched.jobs.targets import mask_target
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.dialects import dialect_warnings
from wheelsched.schedule.spec import Schedule
from wheelsched.wire.instant import instant, instant_or_none
from wheelsched.wire.job import JobAnswer, JobDocument

_DESCRIBE: Final = [(name, field.describe) for name, field in FIELDS.items()]


def schedule_of(job: Job) -> Schedule:
    """The due times of a job."""
    return compile_schedule(job.spec, job.job_id, job.anchor_us)


def job_answer(job: Job | Draft, now_us: int, too_late: Sequence[RunKey] = ()) -> JobAnswer:
    """A job with its next due time, and the runs that a change came too late for."""
    if isinstance(job, Draft):
        return draft_answer(job)
    next_us = schedule_of(job).next_after(now_us) if job.state is JobState.ACTIVE else None
    document = _described(job)
    document["target"] = mask_target(document["target"])
    return JobAnswer(
        job_id=job.job_id,
        state=job.state,
        version=job.version,
        created_at=instant(job.created_at_us),
        updated_at=instant(job.updated_at_us),
        paused_at=instant_or_none(job.paused_at_us),
        next_run_at=instant_or_none(next_us),
        too_late=tuple(map(format_run_id, too_late)),
        warnings=dialect_warnings(job.spec),
        **document,
    )


def document_of(job: Job) -> JobDocument:
    """The document of a job, with every default written out and no value masked."""
    return JobDocument(**_described(job))


def masked_document_of(job: Job) -> JobDocument:
    """The document as readers see it. A patch that leaves a masked header alone keeps its value."""
    document = document_of(job)
    return replace(document, target=mask_target(document.target))


def _described(job: Job) -> dict[str, Any]:
    return {name: describe(job) for name, describe in _DESCRIBE}
