"""Transactions of applications that schedule and cancel jobs, in memory.

Invariant: the changes of a transaction are visible only after its commit. They have the time of the
call, not of the commit. Of two transactions that use the same name, the second to commit fails,
where Postgres would make it wait.
"""

from typing import Literal
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from wheelsched.core.audit import Entry, changed
from wheelsched.core.model import Draft, Job, JobState, RunState
from wheelsched.errors import JobNameTaken
from wheelsched.ports import Caller
from wheelsched.testing.tables import IN_TIME_US, MemoryTables, UnplannedRow

OUT = (RunState.ARMED, RunState.RUNNING)
IfExists = Literal["error", "keep", "replace"]


class Removal(Struct, frozen=True):
    """A job to delete, and the time of the request."""

    job_id: UUID
    written_at_us: int


class MemoryTransaction:
    """An open transaction of an application."""

    def __init__(self, tables: MemoryTables, caller: Caller) -> None:
        self._tables = tables
        self._caller = caller
        self._changes: list[Draft | Removal] = []

    def schedule(
        self, job_id: UUID, document: dict[str, object], if_exists: IfExists = "error"
    ) -> UUID:
        """`wheelsched.schedule`: write a draft for its shard to plan. Returns the job's id."""
        name = str(document["name"])
        known = self._named(name)
        if known is not None and if_exists == "keep":
            return known
        if known is not None and if_exists == "replace":
            self._remove(known)
        elif known is not None:
            raise JobNameTaken
        now_us = self._tables.now_us()
        draft = Draft(
            job_id=job_id,
            tenant_id=self._caller.tenant_id,
            name=name,
            document=Raw(msgspec.json.encode(document)),
            created_at_us=now_us,
            updated_at_us=now_us,
        )
        self._changes.append(draft)
        return job_id

    def cancel(self, job: UUID | str) -> bool | None:
        """`wheelsched.cancel`: returns whether it was in time; None if there is no such job."""
        job_id = self._named(job) or self._finished(job) if isinstance(job, str) else job
        found = None if job_id is None else self._visible(job_id)
        if job_id is None or found is None:
            return None
        if found.state is JobState.FINISHED:
            return False
        self._remove(job_id)
        until_us = self._tables.now_us() + IN_TIME_US
        return not any(
            row.run.state in OUT and row.run.due_us <= until_us
            for key, row in self._tables.runs.items()
            if key.job_id == job_id
        )

    def commit(self) -> None:
        """Apply all changes, or raise an error and apply none."""
        removed = {one.job_id for one in self._changes if isinstance(one, Removal)}
        for change in self._changes:
            if isinstance(change, Draft):
                taken = self._tables.names.get((change.tenant_id, change.name))
                if taken is not None and taken not in removed:
                    self.rollback()
                    raise JobNameTaken
        changes, self._changes = self._changes, []
        for change in changes:
            if isinstance(change, Draft):
                self._add(change)
            else:
                self._delete(change)

    def rollback(self) -> None:
        for change in self._changes:
            if isinstance(change, Removal):
                self._tables.locked.discard(change.job_id)
        self._changes = []

    def _named(self, name: str) -> UUID | None:
        """The job with this name, as this transaction sees it."""
        job_id = self._tables.names.get((self._caller.tenant_id, name))
        if job_id is not None and self._is_removed(job_id):
            job_id = None
        for change in self._changes:
            if isinstance(change, Draft) and change.name == name:
                job_id = None if self._is_removed(change.job_id) else change.job_id
        return job_id

    def _finished(self, name: str) -> UUID | None:
        """The job with this name that finished last."""
        found = [
            (job.updated_at_us, job_id)
            for job_id, job in self._tables.jobs.items()
            if job.tenant_id == self._caller.tenant_id
            and job.name == name
            and job.state is JobState.FINISHED
        ]
        return max(found)[1] if found else None

    def _is_removed(self, job_id: UUID) -> bool:
        return any(
            isinstance(change, Removal) and change.job_id == job_id for change in self._changes
        )

    def _visible(self, job_id: UUID) -> Job | Draft | None:
        job: Job | Draft | None = self._tables.jobs.get(job_id) or self._tables.drafts.get(job_id)
        for change in self._changes:
            if isinstance(change, Draft) and change.job_id == job_id:
                job = change
        if job is None or job.tenant_id != self._caller.tenant_id or self._is_removed(job_id):
            return None
        return job

    def _remove(self, job_id: UUID) -> None:
        self._tables.locked.add(job_id)
        self._changes.append(Removal(job_id, self._tables.now_us()))

    def _add(self, draft: Draft) -> None:
        tables = self._tables
        tables.drafts[draft.job_id] = draft
        tables.occupy(draft)
        entry = Entry("job.register", str(draft.job_id), {"count": 1, "names": [draft.name]})
        tables.note(draft.tenant_id, self._caller.actor, entry)
        self._list(UnplannedRow(draft.job_id, draft.tenant_id, draft.created_at_us))

    def _delete(self, removal: Removal) -> None:
        tables, job_id = self._tables, removal.job_id
        tables.locked.discard(job_id)
        planned = tables.jobs.pop(job_id, None)
        job = planned or tables.drafts.pop(job_id, None)
        if job is None:  # another transaction deleted it first
            return
        is_finished = job.state is JobState.FINISHED
        if not is_finished:
            del tables.names[job.tenant_id, job.name]
        tables.note(job.tenant_id, self._caller.actor, changed("delete", job))
        is_counted = planned is not None and not is_finished
        self._list(UnplannedRow(job_id, job.tenant_id, removal.written_at_us, is_counted))

    def _list(self, row: UnplannedRow) -> None:
        self._tables.unplanned[next(self._tables.unplanned_numbers)] = row
        self._tables.hint(row.job_id, is_unplanned=True)


class MemoryApplication:
    """Starts transactions of applications, or runs one that commits at once."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    def begin(self, caller: Caller) -> MemoryTransaction:
        return MemoryTransaction(self._tables, caller)

    def schedule(self, caller: Caller, job_id: UUID, document: dict[str, object]) -> Draft:
        transaction = self.begin(caller)
        transaction.schedule(job_id, document)
        transaction.commit()
        return self._tables.drafts[job_id]

    def cancel(self, caller: Caller, job_id: UUID) -> bool | None:
        transaction = self.begin(caller)
        was_in_time = transaction.cancel(job_id)
        transaction.commit()
        return was_in_time
