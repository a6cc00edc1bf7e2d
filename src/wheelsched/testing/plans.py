"""`PlanStore` in memory.

Invariant: like on Postgres, a draft is accepted or refused once, under the fence. A draft that a
transaction has locked is skipped.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from msgspec.structs import replace

from wheelsched.core.model import Draft, JobState, Run, RunState, SkipReason
from wheelsched.core.partition import partition_of
from wheelsched.ports import Lease, Plan, Planned, Unplanned
from wheelsched.testing.tables import MemoryTables, TimerRow, UnplannedRow


class MemoryPlans:
    """`PlanStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def list_unplanned(self, partitions: Collection[int], limit: int) -> list[Unplanned]:
        found = [
            Unplanned(number, row.job_id, self._unplanned(row.job_id))
            for number, row in self._tables.unplanned.items()
            if partition_of(row.job_id) in partitions
        ]
        return found[:limit]

    async def plan(self, lease: Lease, plans: Sequence[Plan]) -> Planned:
        self._tables.check_lease(lease)
        accepted, refused = set(), set()
        for plan in sorted(plans, key=lambda plan: plan.number):
            job_id = plan.draft.job_id
            draft = self._unplanned(job_id)
            if (
                draft is None
                or draft.version != plan.draft.version
                or job_id in self._tables.locked
                or not self._tables.owns(lease, job_id)
            ):
                continue
            if self._plan(plan, draft):
                accepted.add(job_id)
            else:
                refused.add(job_id)
            self._tables.unplanned.pop(plan.number, None)
        return Planned(frozenset(accepted), frozenset(refused))

    async def clear(self, lease: Lease, numbers: Collection[int]) -> None:
        self._tables.check_lease(lease)
        for number in numbers:
            row = self._tables.unplanned.get(number)
            if row is None or not self._tables.owns(lease, row.job_id):
                continue
            if self._unplanned(row.job_id) is None:
                del self._tables.unplanned[number]
                self._tables.job_counts[row.tenant_id] -= row.is_counted
                if row.job_id not in self._tables.jobs and row.job_id not in self._tables.drafts:
                    self._clear(row)

    def _unplanned(self, job_id: UUID) -> Draft | None:
        draft = self._tables.drafts.get(job_id)
        return draft if draft is not None and draft.state is JobState.UNPLANNED else None

    def _plan(self, plan: Plan, draft: Draft) -> bool:
        tables = self._tables
        quota = tables.tenants[draft.tenant_id].job_quota
        before = tables.job_counts[draft.tenant_id]
        error, registration = plan.error, plan.registration
        if registration is not None and before >= quota:
            error = f"the tenant has reached its quota of {quota} jobs"
        changes = {"version": draft.version + 1, "updated_at_us": tables.now_us()}
        if registration is None or error is not None:
            state = JobState.REFUSED
            tables.drafts[draft.job_id] = replace(draft, state=state, error=error, **changes)
            return False
        del tables.drafts[draft.job_id]
        job = replace(registration.job, created_at_us=draft.created_at_us, **changes)
        tables.jobs[draft.job_id] = job
        tables.job_counts[draft.tenant_id] += 1
        tables.timers[draft.job_id] = TimerRow(job.version, registration.due_us)
        return True

    def _clear(self, gone: UnplannedRow) -> None:
        tables, job_id = self._tables, gone.job_id
        timer = tables.timers.pop(job_id, None)
        if timer is not None and timer.due_us is not None and timer.due_us <= gone.written_at_us:
            tables.write_run(_skipped(gone, timer.due_us, tables.now_us()))
        for key in [key for key in tables.retries if key.job_id == job_id]:
            row = tables.runs[key]
            if row.run.state is RunState.RETRYING:
                del tables.retries[key]
                row.run = replace(
                    row.run,
                    state=RunState.CANCELLED,
                    finished_at_us=tables.now_us(),
                    retry_at_us=None,
                )


def _skipped(gone: UnplannedRow, due_us: int, now_us: int) -> Run:
    """A skipped run for the timer's own due time only, because the schedule is deleted."""
    return Run(
        job_id=gone.job_id,
        due_us=due_us,
        tenant_id=gone.tenant_id,
        state=RunState.SKIPPED,
        finished_at_us=now_us,
        skip_reason=SkipReason.DELETED,
        missed_count=1,
        missed_since_us=due_us,
    )
