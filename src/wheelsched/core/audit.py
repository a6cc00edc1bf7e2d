"""The entries of the audit log.

Invariant: each request has one entry, however many jobs or runs it changes. No entry contains a
secret, a payload or a header.
"""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from wheelsched.core.model import Draft, Job, RunKey, format_run_id

MAX_LISTED: Final = 10  # an entry with more names gives only their number


class Entry(Struct, frozen=True):
    """One line of the audit log: a verb such as `job.pause`, its subject, and details."""

    verb: str
    subject: str
    detail: dict[str, object] = {}


def registered(jobs: Sequence[Job]) -> Entry:
    """The entry for new jobs."""
    subject = str(jobs[0].job_id) if len(jobs) == 1 else f"{len(jobs)} jobs"
    return Entry("job.register", subject, _counted("names", [job.name for job in jobs]))


def changed(verb: str, job: Job | Draft, **detail: object) -> Entry:
    """The entry for a changed job. `job` is the job before the change, or after an edit."""
    named: dict[str, object] = {"name": job.name, "version": job.version}
    return Entry(f"job.{verb}", str(job.job_id), named | detail)


def asked(verb: str, keys: Collection[RunKey]) -> Entry:
    """The entry for a request about runs."""
    run_ids = sorted(map(format_run_id, keys))
    subject = run_ids[0] if len(run_ids) == 1 else f"{len(run_ids)} runs"
    return Entry(f"run.{verb}", subject, _counted("runs", run_ids))


def _counted(noun: str, names: list[str]) -> dict[str, object]:
    counted: dict[str, object] = {"count": len(names)}
    return counted | {noun: names} if len(names) <= MAX_LISTED else counted
