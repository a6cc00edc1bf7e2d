"""No tenant reads or affects what is another's.

A run comes to the worker of its own tenant, in its name, and signed with its secret where anything
is signed. Who asks for a job of another tenant is told that there is none. That nothing was done
either, the others see: for them nobody has asked for it.
"""

from collections.abc import Iterator

from tests.checker.excuses import is_row_lost
from tests.checker.findings import Evidence, Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    yield from _deliveries(evidence)
    for trespass in evidence.history.trespasses:
        if trespass.shown == "something":
            detail = f"{trespass.verb} by {trespass.tenant}: {trespass.answer}"
            yield Finding("cross_tenant", trespass.job, trespass.due_us or 0, detail)


def _deliveries(evidence: Evidence) -> Iterator[Finding]:
    for arrival in evidence.history.arrivals:
        story = evidence.stories.get(arrival.job)
        run = evidence.runs.get((arrival.job, arrival.due_us))
        is_lost = run is None and is_row_lost(evidence, arrival.job, arrival.due_us)
        urls = {one.url for one in story.definitions.values()} if story else set()
        tenants = {
            arrival.tenant,
            arrival.signer or arrival.tenant,
            story.tenant if story else None,
            run.tenant if run else arrival.tenant if is_lost else None,
        }
        if arrival.url not in urls or len(tenants) > 1:
            yield Finding("cross_tenant", arrival.job, arrival.due_us, f"{arrival.url} {tenants}")
