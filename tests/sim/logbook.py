"""The logs of a simulation, as the checker reads them."""

from collections.abc import Callable
from uuid import UUID

from msgspec.structs import replace
from tests.checker.records import (
    Arrival,
    ClockError,
    Ending,
    Fault,
    Handful,
    History,
    JobRow,
    Life,
    Offer,
    Offset,
    Ownership,
    PartitionRow,
    Request,
    RunRow,
)

from wheelsched.core.model import Draft, Job, Run
from wheelsched.core.partition import PARTITIONS, partition_of
from wheelsched.testing.tables import MemoryTables

BLINDING = ("store", "freeze", "clock")
BLINDED_US = 30_000_000  # a large error is made good by and by


class Logbook:
    """What clients, workers and the experiment itself have noted."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.started_us = now_us()
        self.is_narrow = False
        self.requests: list[Request] = []
        self.arrivals: list[Arrival] = []
        self.handfuls: list[Handful] = []
        self.offers: list[Offer] = []
        self.faults: list[Fault] = []
        self.offsets: list[Offset] = []
        self.clock_errors: list[ClockError] = []
        self.ownerships: list[Ownership] = []
        self.lives: dict[str, Life] = {}  # by the name of the process
        self.overwritten: list[RunRow] = []
        self.forgotten: list[RunRow] = []
        self._restored: dict[int, tuple[int, UUID, int]] = {}  # as in `_current`
        self._current: dict[int, tuple[int, UUID, int]] = {}

    def fault(self, kind: str, from_us: int, until_us: int, process: str | None = None) -> None:
        """Of a process, under a name that it had a lease under, or of everybody."""
        shard = process and (*self.lives[process].shards, process)[0]
        self.faults.append(
            Fault(kind=kind, from_us=from_us, until_us=until_us, shard=shard)  # type: ignore[arg-type] # its words are checked when it is read
        )

    def born(self, process: str) -> None:
        self.lives[process] = Life(from_us=self.now_us())

    def joined(self, process: str, shard_id: UUID) -> None:
        """A process asks for a lease under a name."""
        life = self.lives[process]
        self.lives[process] = replace(life, shards=(*life.shards, str(shard_id)))

    def died(self, process: str, *, is_killed: bool, is_known: bool = False) -> None:
        life = self.lives[process]
        if life.until_us is None or is_killed:
            now_us = self.now_us()
            leaving_us = life.leaving_us if is_killed else now_us
            self.lives[process] = replace(
                life, until_us=now_us, leaving_us=leaving_us, is_killed=is_killed, is_known=is_known
            )

    def owners_changed(self, tables: MemoryTables, ended: Ending) -> None:
        """Notes who owns what now, after a statement that may have changed it."""
        now_us = self.now_us()
        for partition in range(PARTITIONS):
            row = tables.partitions[partition]
            known = self._current.get(partition)
            if known is not None and (row.owner != known[1] or row.epoch != known[0]):
                has_started_over = row.owner == known[1]  # nothing is handed over
                self._end(partition, now_us, "left" if has_started_over else ended)
                known = None
            restored = self._restored.get(partition)
            if restored is not None and (row.epoch, row.owner) != restored[:2]:
                del self._restored[partition]
                self._note(partition, restored, (now_us, ended), is_restored=True)
                restored = None
            if known is None and row.owner is not None and restored is None:
                self._current[partition] = (row.epoch, row.owner, now_us)

    def went_back(self, tables: MemoryTables, since_us: int) -> None:
        """Notes that the tables are what they were at an instant, and which owners that forgets."""
        now_us = self.now_us()
        self.fault("loss", since_us, now_us)
        for partition, row in enumerate(tables.partitions):
            known = self._current.get(partition)
            if known is not None and (row.owner != known[1] or row.epoch != known[0]):
                self._end(partition, now_us, "forgotten")
            if restored := self._restored.pop(partition, None):
                self._note(partition, restored, (now_us, "forgotten"), is_restored=True)
            if partition not in self._current and row.owner is not None:
                self._restored[partition] = (row.epoch, row.owner, now_us)

    def has_forgotten_epochs(self, tables: MemoryTables) -> bool:
        """Whether the tables have forgotten an epoch, and nobody has taken a later one yet."""
        return any(
            one.ended == "forgotten" and one.epoch >= tables.partitions[one.partition].epoch
            for one in self.ownerships
        )

    def close(self, tables: MemoryTables, healed_us: int) -> History:
        for partition in tuple(self._current):
            self._end(partition, None, None)
        for partition, restored in self._restored.items():
            self._note(partition, restored, (None, None), is_restored=True)
        return History(
            started_us=self.started_us,
            healed_us=healed_us,
            ended_us=self.now_us(),
            is_narrow=self.is_narrow,
            requests=tuple(self.requests),
            arrivals=tuple(self.arrivals),
            handfuls=tuple(self.handfuls),
            offers=tuple(self.offers),
            jobs=tuple(_jobs(tables)),
            runs=tuple(run_row(row.run) for row in tables.runs.values()),
            partitions=tuple(
                PartitionRow(partition=partition, epoch=row.epoch)
                for partition, row in enumerate(tables.partitions)
            ),
            overwritten=tuple(self.overwritten),
            forgotten=tuple(self.forgotten),
            faults=tuple(self.faults),
            ownerships=tuple(self.ownerships),
            lives=tuple(self.lives.values()),
            offsets=tuple(self.offsets),
            clock_errors=tuple(self.clock_errors),
        )

    def said_of_clock(self, error_us: int) -> None:
        """What a shard says of its clock; believed if something has kept it from reading that."""
        since_us = self.now_us() - BLINDED_US
        if any(fault.kind in BLINDING and fault.until_us > since_us for fault in self.faults):
            self.clock_errors.append(ClockError(at_us=self.now_us(), error_us=error_us))

    def _end(self, partition: int, until_us: int | None, ended: Ending | None) -> None:
        self._note(partition, self._current.pop(partition), (until_us, ended), is_restored=False)

    def _note(
        self,
        partition: int,
        taken: tuple[int, UUID, int],
        end: tuple[int | None, Ending | None],
        *,
        is_restored: bool,
    ) -> None:
        epoch, owner, from_us = taken
        until_us, ended = end
        self.ownerships.append(
            Ownership(
                partition=partition,
                epoch=epoch,
                shard=str(owner),
                from_us=from_us,
                until_us=until_us,
                ended=ended,
                is_restored=is_restored,
            )
        )


def _jobs(tables: MemoryTables) -> list[JobRow]:
    jobs: list[Job | Draft] = [*tables.jobs.values(), *tables.drafts.values()]
    return [
        JobRow(
            job=str(job.job_id),
            tenant=str(job.tenant_id),
            partition=partition_of(job.job_id),
            state=job.state.value,
            next_due_us=timer.due_us if (timer := tables.timers.get(job.job_id)) else None,
            error=job.error if isinstance(job, Draft) else None,
        )
        for job in jobs
    ]


def run_row(run: Run) -> RunRow:
    return RunRow(
        job=str(run.job_id),
        due_us=run.due_us,
        tenant=str(run.tenant_id),
        partition=partition_of(run.job_id),
        state=run.state.value,
        trigger=run.trigger.value,
        attempt=run.attempt,
        token=run.token,
        shard=None if run.shard is None else str(run.shard),
        armed_at_us=run.armed_at_us,
        finished_at_us=run.finished_at_us,
        skip_reason=None if run.skip_reason is None else run.skip_reason.value,
        missed_count=run.missed_count,
        missed_since_us=run.missed_since_us,
        backfill_of_us=run.backfill_of_us,
        attempts_before=run.attempts_before,
    )
