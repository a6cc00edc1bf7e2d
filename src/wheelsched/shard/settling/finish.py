"""Finishes jobs that have no further due time, once their last run has ended.

Invariant: a job is finished once it has neither a due time nor an unfinished run.
"""

from uuid import UUID

from wheelsched.flow import Pending
from wheelsched.shard.context import Context
from wheelsched.shard.runs.registry import RunRegistry
from wheelsched.shard.settling.results import ResultQueue


class EndingJobs:
    """Jobs that have no further due time."""

    def __init__(self, registry: RunRegistry) -> None:
        self._registry = registry
        self.running: set[UUID] = set()  # those with an unfinished run
        self.over: Pending[UUID] = Pending()
        self.finishing: set[UUID] = set()  # being written; until then their timers are loaded again

    def put(self, job_id: UUID) -> None:
        """Adds a job whose schedule has no further due time."""
        if self._registry.has_any(job_id):
            self.running.add(job_id)
        elif job_id not in self.finishing:
            self.over.put(job_id)

    def run_ended(self, job_id: UUID) -> None:
        """Updates a job in `running` after one of its runs has ended."""
        if not self._registry.has_any(job_id):
            self.running.remove(job_id)
            self.over.put(job_id)


class Finish:
    """Finishes jobs in batches. Nothing waits for it, so results and orphans go first."""

    def __init__(self, context: Context, ending: EndingJobs, results: ResultQueue) -> None:
        self._context = context
        self._ending = ending
        self._results = results

    async def run(self) -> None:
        """Finishes jobs until it is cancelled."""
        config, clock = self._context.config.settle, self._context.clock
        ending = self._ending
        while True:
            await ending.over.wait()
            if len(ending.over) < config.batch:
                await clock.sleep(config.finish_ns)
            over = await ending.over.take()
            ending.finishing.update(over)
            for start in range(0, len(over), config.batch):
                await self._let_others_go_first()
                batch = over[start : start + config.batch]
                await self._context.store.finish(batch)
                ending.finishing.difference_update(batch)

    async def _let_others_go_first(self) -> None:
        config, clock = self._context.config.settle, self._context.clock
        await clock.sleep(config.linger_ns)
        while self._results.runs >= config.batch or self._context.registry.orphans:
            await clock.sleep(config.linger_ns)
