"""Claims the further attempts of runs, and requested runs.

Invariant: one job has a limited number of runs armed. The rest of its retries are held back until
half of that room is free, so a backlog of one job fills neither the memory nor the room of others.
A further attempt of a live run is never held back, however full the shard is: what fills it may be
runs that wait for the end of this one.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from uuid import UUID

from wheelsched.core.model import RunKey, RunState
from wheelsched.flow import yielding
from wheelsched.ports import ClaimedRetry, Retry
from wheelsched.shard.arming.request_builder import RequestBuilder
from wheelsched.shard.context import Context
from wheelsched.shard.queues import Queues
from wheelsched.shard.settling.results import Ruling


class ArmRetries:
    """Arms retries, a limited number per job."""

    def __init__(self, context: Context, queues: Queues, request_builder: RequestBuilder) -> None:
        self._context = context
        self._config = context.config.arm
        self._queues = queues
        self._retries = queues.upcoming.retries
        self._request_builder = request_builder

    def release_held(self, room: int) -> None:
        """Releases retries of jobs that have half of their room free, at most `room` of them."""
        for job_id in tuple(self._retries.held_jobs):
            if room <= 0:
                return
            most = self._most_armed(job_id)
            free = most - self._context.registry.count_armed(job_id)
            if free >= most // 2:
                self._retries.release(job_id, min(free, room))
                room -= min(free, room)

    async def arm(self, waiting: Sequence[Retry], room: int) -> None:
        """Claims retries, and builds the requests of those that were won. `room` limits those that
        are not of a live run."""
        next_token = self._context.ownership.next_token
        claims = [
            ClaimedRetry(retry.key, retry.retry_at_us, next_token(retry.key.job_id))
            for retry in self._sort_out(self._hold_back(waiting, room))
        ]
        if claims:
            rulings = self._context.registry.rulings
            with rulings.claiming(claim.key for claim in claims) as ruled:
                await self._claim(claims, ruled)

    def _most_armed(self, job_id: UUID) -> int:
        """How many runs of a job may be armed at a time. Its requests are of similar size."""
        sample = self._context.registry.any_armed(job_id)
        if sample is None:
            return self._config.armed_per_job
        fitting = self._config.armed_bytes_per_job // max(len(sample.prepared.content), 1)
        return min(max(fitting, self._config.armed_at_least), self._config.armed_per_job)

    def _hold_back(self, waiting: Sequence[Retry], room: int) -> list[Retry]:
        """Holds back what exceeds the room of its job, or that of all, and returns the rest."""
        registry = self._context.registry
        together = Counter([retry.key.job_id for retry in waiting])
        room_of = {
            job_id: self._most_armed(job_id)
            + (self._config.armed_singly if count <= self._config.armed_singly else 0)
            - registry.count_armed(job_id)
            for job_id, count in together.items()
        }
        claimed = []
        for retry in waiting:
            job_id = retry.key.job_id
            is_live = registry.is_live(retry.key)
            if is_live or (room > 0 and room_of[job_id] > 0):
                room -= not is_live
                room_of[job_id] -= 1
                claimed.append(retry)
            else:
                self._retries.hold_back(retry)
        return claimed

    def _sort_out(self, waiting: Sequence[Retry]) -> list[Retry]:
        """The retries that can be claimed now: none of a run with an unwritten ruling, and none of
        a job with orphans."""
        registry = self._context.registry
        claimable = []
        for retry in waiting:
            job_id = retry.key.job_id
            if not self._context.ownership.may_arm(job_id):
                pass
            elif retry.key in registry.rulings:
                registry.rulings.postpone_retry(retry.key)
            elif job_id in registry.orphans.jobs:
                registry.orphans.prioritize(job_id, retry)
            else:
                claimable.append(retry)
        return claimable

    async def _claim(self, claims: Sequence[ClaimedRetry], ruled: Collection[RunKey]) -> None:
        claimed = await self._context.store.arm_retries(claims)
        runs = await self._request_builder.with_payloads(claimed.won)
        lost = {claim.key for claim in claims} - {run.key for run in runs} - claimed.refused
        self._queues.reloads.put(*{key.job_id for key in lost})
        for key in lost:
            self._queues.doubtful.put(key)
        jobs = await self._request_builder.read_jobs({run.job_id for run in runs})
        by_id = {job.job_id: job for job in jobs}
        times_us = {claim.key: claim.retry_at_us for claim in claims}
        async for some in yielding(self._context.clock, runs, self._config.build_slice):
            for run in some:
                assert run.token
                if run.job_id in by_id and run.key not in ruled:
                    job, fire_at_us = by_id[run.job_id], times_us[run.key]
                    prepared = self._request_builder.prepare(job, run, run.token, fire_at_us)
                else:  # the job was deleted, or the run was ruled, meanwhile
                    prepared = Ruling(key=run.key, token=run.token, state=RunState.CANCELLED)
                if isinstance(prepared, Ruling):
                    self._queues.results.put(prepared)
                else:
                    self._context.doubts.vouch(prepared)
                    self._context.registry.arm(prepared)
