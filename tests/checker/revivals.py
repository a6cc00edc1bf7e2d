"""Runs that somebody retries by hand: each retry that was acknowledged gives its run another life,
and nothing else does.

A request is one, however often it was sent with its key.
"""

from collections.abc import Iterator

from tests.checker.findings import Evidence, Finding
from tests.checker.story import Story


def check(evidence: Evidence) -> Iterator[Finding]:
    for (job, due_us), ends in evidence.revived.items():
        asked = evidence.retries_of(job, due_us)
        if len(ends) > len(asked):
            detail = f"{len(ends)} times, after {[one.state for one in ends]}"
            yield Finding("retried_unasked", job, due_us, detail)
    for story in evidence.stories.values():
        yield from _unheeded(evidence, story)


def _unheeded(evidence: Evidence, story: Story) -> Iterator[Finding]:
    told: dict[int, int] = {}
    for request in story.retries:
        if request.result == "ok":
            named = [request.due_us] if request.verb == "retry" else request.filled_us
            for due_us in named:
                told[due_us or 0] = told.get(due_us or 0, 0) + 1
    for due_us, count in told.items():
        lives = len(evidence.revived.get((story.job, due_us), ()))
        if lives < count:
            yield Finding("lost", story.job, due_us, f"{lives} of {count} retries by hand")
