"""Promise 10, and jobs of transactions: a job exists if its client was told so, and is what it is.

What was committed is there until somebody deletes it; what was rolled back never was. What cannot
be meant is refused, with a reason; nothing else is; and nothing waits to be planned forever.
"""

from collections.abc import Iterator

from tests.checker.findings import Evidence, Finding, Report
from tests.checker.losses import is_in_loss
from tests.checker.story import Story


def check(evidence: Evidence, report: Report) -> Iterator[Finding]:
    report.forgotten_jobs = sum(1 for job in _forgotten(evidence))
    rows = {job.job: job for job in evidence.history.jobs}
    for story in evidence.stories.values():
        row = rows.get(story.job)
        created = [request for request in story.requests if request.verb == "create"]
        is_touched = row is not None or story.job in evidence.runs_of
        if is_touched and all(request.result == "failed" for request in created):
            yield Finding("uncommitted", story.job, 0, "it was rolled back, or refused")
        if row is None:
            if not _may_be_gone(story):
                yield Finding("vanished", story.job, 0, "nobody has deleted it")
            continue
        if row.state == "unplanned":
            yield Finding("unplanned", story.job, 0, f"written at {created[0].written_us}")
        is_wrong = any(request.is_wrong for request in created)
        is_accepted = row.state not in ("unplanned", "refused") or story.job in evidence.runs_of
        if is_wrong and is_accepted:
            yield Finding("misjudged", story.job, 0, f"{row.state}, and cannot be meant")
        if row.state == "refused" and not (is_wrong and row.error):
            yield Finding("misjudged", story.job, 0, f"refused: {row.error}")


def _may_be_gone(story: Story) -> bool:
    is_certain = any(one.verb == "create" and one.result == "ok" for one in story.requests)
    is_deleted = any(one.verb == "delete" and one.result != "failed" for one in story.requests)
    return not is_certain or is_deleted


def _forgotten(evidence: Evidence) -> Iterator[str]:
    """The jobs that were acknowledged in a loss, and are gone though nobody deleted them."""
    told = evidence.told
    there = {job.job for job in told.jobs}
    deleted = {one.job for one in told.requests if one.verb == "delete" and one.result == "ok"}
    for one in told.requests:
        is_created = one.verb == "create" and one.result == "ok" and is_in_loss(told, one)
        if is_created and one.job not in there | deleted:
            yield one.job
