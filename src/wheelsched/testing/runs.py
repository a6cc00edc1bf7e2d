"""`RunStore` in memory. Invariant: like on Postgres, writes are fenced by token."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from wheelsched.core.model import UNFINISHED_STATES, JobState, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.ports import Adoption, Checked, Lease, Settled
from wheelsched.ports.work import Attempted
from wheelsched.testing.outcomes import settle
from wheelsched.testing.tables import MemoryTables, RunRow

ADOPTABLE = (RunState.ARMED, RunState.RUNNING)


class MemoryRuns:
    """`RunStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def settle(self, settled: Sequence[Settled]) -> set[RunKey]:
        stale: set[RunKey] = set()
        for outcome in settled:
            row = self._tables.runs.get(outcome.key)
            if row is None:
                continue
            if row.run.token != outcome.token:
                self._tables.stale.add((outcome.key, outcome.token))
                stale.add(outcome.key)
            else:
                settle(self._tables, row, outcome)
        return stale

    async def list_unfinished(
        self,
        lease: Lease,
        partitions: Collection[int],
        limit: int,
        after: Mapping[int, RunKey] | None = None,
        *,
        is_first: bool = False,
    ) -> list[RunKey]:
        found: dict[int, list[RunKey]] = {
            partition: []
            for partition in sorted(partitions)
            if self._tables.partitions[partition].owner == lease.shard_id
        }
        for key, row in self._tables.runs.items():
            is_wanted = not (is_first and key in self._tables.retries)
            if row.run.state in UNFINISHED_STATES and self._is_known(row) and is_wanted:
                partition = partition_of(key.job_id)
                last = (after or {}).get(partition)
                if partition in found and (last is None or position(key) > position(last)):
                    found[partition].append(key)
        pages = (sorted(keys, key=position)[:limit] for keys in found.values())
        return list(chain.from_iterable(pages))

    async def adopt(self, lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        if not adoptions:
            return set()
        self._tables.check_lease(lease)
        lost: set[RunKey] = set()
        for adoption in adoptions:
            row = self._tables.runs.get(adoption.key)
            if (
                row is None
                or not self._tables.owns(lease, adoption.key.job_id)
                or row.run.state not in ADOPTABLE
                or row.run.token != adoption.old_token
                or adoption.token <= adoption.old_token
            ):
                lost.add(adoption.key)
                continue
            row.run = replace(row.run, shard=lease.shard_id, token=adoption.token)
            row.heartbeat_at_us = None
        return lost

    async def forget_heartbeats(self, returned: Mapping[Attempted, int]) -> None:
        for attempt, given_back_us in returned.items():
            row = self._tables.runs.get(attempt.key)
            if row is None or row.run.token != attempt.token:
                continue
            if row.heartbeat_at_us is not None and row.heartbeat_at_us <= given_back_us:
                row.heartbeat_at_us = row.lease_us = None

    async def revalidate(self, keys: Collection[RunKey]) -> list[Checked]:
        found = [(key, self._tables.runs[key]) for key in keys if key in self._tables.runs]
        return [
            Checked(
                run=row.run,
                version=self._version(key),
                heartbeat_at_us=row.heartbeat_at_us,
                lease_us=row.lease_us,
                is_paused=self._is_paused(row),
            )
            for key, row in found
        ]

    def _version(self, key: RunKey) -> int | None:
        job = self._tables.jobs.get(key.job_id)
        return None if job is None else job.version

    def _is_paused(self, row: RunRow) -> bool:
        job = self._tables.jobs.get(row.run.job_id)
        return job is not None and job.state is JobState.PAUSED and not row.had_retry

    def _is_known(self, row: RunRow) -> bool:
        """Whether a sweep finds the run: after its partition's mark, or among the retries."""
        mark_us = self._tables.partitions[partition_of(row.run.job_id)].live_since_us
        return row.run.due_us >= mark_us or row.run.key in self._tables.retries


def position(key: RunKey) -> tuple[int, bytes]:
    """The sort key of a sweep within one partition."""
    return key.due_us, key.job_id.bytes
