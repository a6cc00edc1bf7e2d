"""Reports the open breakers to the store, so that the API can tell what a run waits for.

Invariant: nothing depends on the report. It may be a moment old, and has at most `MOST` breakers,
those of origins first.
"""

from collections import Counter
from uuid import UUID

import structlog
from msgspec.structs import replace

from wheelsched.core.model import BreakerKind
from wheelsched.errors import LeaseLost, StoreError
from wheelsched.fairness.breaker import Breaker, BreakerState
from wheelsched.fairness.failing_jobs import FailingJob
from wheelsched.fairness.fair_queue import FairQueue
from wheelsched.ports import OpenBreaker
from wheelsched.shard.context import Context
from wheelsched.shard.runs.armed_run import Batch

log = structlog.get_logger("wheelsched.shard")

MOST = 500
MOST_ERROR = 200  # characters


class BreakerReport:
    """Writes the open breakers of a shard to the store whenever they change."""

    def __init__(self, context: Context, queue: FairQueue[Batch]) -> None:
        self._context = context
        self._queue = queue
        self._reported: list[OpenBreaker] = []

    async def run(self) -> None:
        """Reports until it is cancelled."""
        while True:
            await self._report()
            await self._context.clock.sleep(self._context.config.watch_us * 1_000)

    async def _report(self) -> None:
        found = open_breakers(self._queue, 0)
        if found == self._reported:
            return
        context = self._context
        shown = open_breakers(self._queue, context.clock.now_us() - context.ownership.now_us())
        try:
            await context.stores.leases.tell(context.ownership.lease, shown)
        except LeaseLost:
            raise
        except StoreError as error:
            context.vitals.store.count_error(error)
            log.warning("breakers.report_failed", error=str(error))
        else:
            self._reported = found


def count_breakers(queue: FairQueue[Batch]) -> Counter[tuple[str, str]]:
    """The number of breakers that are not closed, by kind and state."""
    states = [(BreakerKind.ORIGIN, breaker.state) for breaker in queue.breakers().values()]
    states += [(_kind_of(job), job.breaker.state) for job in queue.failing_jobs()]
    return Counter((kind.value, state.value) for kind, state in states)


def open_breakers(queue: FairQueue[Batch], offset_us: int) -> list[OpenBreaker]:
    """The breakers that are not closed. `offset_us` is added to the times of the queue's clock."""
    origins = [
        _shown(breaker, offset_us, BreakerKind.ORIGIN, (tenant_id, origin))
        for (tenant_id, origin), breaker in queue.breakers().items()
        if breaker.state is not BreakerState.CLOSED
    ]
    jobs = [_shown_job(job, offset_us) for job in queue.failing_jobs()]
    return [*origins, *jobs][:MOST]


def _shown_job(job: FailingJob[Batch], offset_us: int) -> OpenBreaker:
    tenant_id, kind = job.route.tenant_id, _kind_of(job)
    if isinstance(job.subject, UUID):
        shown = _shown(job.breaker, offset_us, kind, (tenant_id, job.route.origin))
        return replace(shown, job_id=job.subject)
    return _shown(job.breaker, offset_us, kind, (tenant_id, job.route.target.name))


def _kind_of(job: FailingJob[Batch]) -> BreakerKind:
    return BreakerKind.JOB if isinstance(job.subject, UUID) else BreakerKind.TARGET


def _shown(
    breaker: Breaker, offset_us: int, kind: BreakerKind, whose: tuple[UUID, str]
) -> OpenBreaker:
    tenant_id, target = whose
    return OpenBreaker(
        kind=kind,
        tenant_id=tenant_id,
        target=target,
        opened_at_us=breaker.opened_us + offset_us,
        next_probe_at_us=breaker.open_until_us + offset_us,
        error=breaker.error[:MOST_ERROR],
    )
