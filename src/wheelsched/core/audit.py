"""Audit: what is written down about a change, beside who asked for it.

Invariant: one entry for each request, however many jobs or runs it is about; and in none of them
a secret, a payload or a header.
"""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from wheelsched.core.model import Draft, Job, RunKey, format_run_id

FEW: Final = 10  # so many are named one by one


class Entry(Struct, frozen=True):
    """A line of the audit: `job.pause` of this job, with what else is worth knowing."""

    verb: str
    subject: str
    detail: dict[str, object] = {}


def registered(jobs: Sequence[Job]) -> Entry:
    """Jobs that were not there before."""
    subject = str(jobs[0].job_id) if len(jobs) == 1 else f"{len(jobs)} jobs"
    return Entry("job.register", subject, _counted("names", [job.name for job in jobs]))


def changed(verb: str, job: Job | Draft, **detail: object) -> Entry:
    """A job as it was before the change; one that was edited, as it is now."""
    named: dict[str, object] = {"name": job.name, "version": job.version}
    return Entry(f"job.{verb}", str(job.job_id), named | detail)


def asked(verb: str, keys: Collection[RunKey]) -> Entry:
    """What a person asked of runs."""
    run_ids = sorted(map(format_run_id, keys))
    subject = run_ids[0] if len(run_ids) == 1 else f"{len(run_ids)} runs"
    return Entry(f"run.{verb}", subject, _counted("runs", run_ids))


def _counted(noun: str, names: list[str]) -> dict[str, object]:
    counted: dict[str, object] = {"count": len(names)}
    return counted | {noun: names} if len(names) <= FEW else counted
