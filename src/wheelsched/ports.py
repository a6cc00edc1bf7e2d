"""Ports: what wheelsched asks of the world, and nothing of how it is done.

Invariant: a port names what is needed and never who provides it; it imports no adapter. Every
method of a store may be sent again with the same arguments after an error, and then changes
nothing that the first sending changed. Methods of stores take and give whole batches.

The stores of a shard are `LeaseStore`, `TimerStore` and `RunStore`; those of the API are
`JobStore` and `HistoryStore`, which see one tenant at a time.
"""

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from wheelsched.core.misfire import Skip
from wheelsched.core.model import Attempt, Job, JobState, Run, RunKey, RunState, SkipReason, Trigger

UUID_BYTES = 16


class Alarm(Protocol):
    """Rings once for each time it was set: on its loop, at or after that time, never before."""

    def set(self, when_ns: int) -> None:
        """Ring at `when_ns` instead of whenever it was set for before.

        A time that has passed rings at the loop's next turn, never inside this call.
        """

    def close(self) -> None:
        """Never ring again, and give back what the alarm holds."""


class Clock(Protocol):
    """The time, in integer nanoseconds since an instant of the clock's own: it never goes back."""

    def now_ns(self) -> int:
        """Return the time."""

    def alarm(self, ring: Callable[[], object]) -> Alarm:
        """Make an alarm that calls `ring` on the running loop, in a copy of the context of now."""

    async def sleep(self, delay_ns: int) -> None:
        """Return when `delay_ns` have passed; with 0, when the loop has had one turn."""


class Lease(Struct, frozen=True):
    """A shard's right to write, as its statements name it.

    The fence grows whenever the shard hands partitions over: a statement that still carries the
    old one, and that somebody believed lost, does nothing when it arrives after that.
    """

    shard_id: UUID
    fence: int


class ShardView(Struct, frozen=True, kw_only=True):
    """The lease of a shard, as another sees it."""

    shard_id: UUID
    renewals: int
    is_expired: bool  # by the database's clock
    started_at_us: int
    address: str | None = None


class Ownership(Struct, frozen=True):
    """Who owns a partition, in which epoch."""

    partition: int
    owner: UUID | None
    epoch: int


class Survey(Struct, frozen=True):
    """All shards and all partitions."""

    shards: tuple[ShardView, ...]
    partitions: tuple[Ownership, ...]


class LeaseStore(Protocol):
    """Leases and partitions: the *acquire* stage."""

    async def join(self, shard_id: UUID, ttl_us: int, address: str | None = None) -> Lease:
        """Begins a lease. The id is fresh for each start of a process."""

    async def renew(self, lease: Lease, ttl_us: int) -> None:
        """Prolongs the lease, or raises `LeaseLost`."""

    async def survey(self) -> Survey:
        """Looks at everybody."""

    async def acquire(self, lease: Lease, partitions: Collection[int]) -> list[Ownership]:
        """Takes those of the partitions that nobody owns, each with a new epoch.

        Gives all of them that are the shard's now.
        """

    async def release(self, lease: Lease, partitions: Collection[int]) -> Lease:
        """Hands partitions over to whoever takes them, after every statement in flight.

        Gives the lease to go on with. Of what was sent with the old one, nothing more is written.
        """

    async def take_over(self, lease: Lease, shard_id: UUID, renewals: int) -> bool:
        """Ends the lease of a dead shard and frees its partitions, after its last statement.

        Does so only if the lease has expired and was renewed no more than `renewals` times.
        """

    async def leave(self, lease: Lease) -> None:
        """Ends the shard's own lease and frees its partitions."""


class Retry(Struct, frozen=True):
    """A run that waits for a further attempt, or for the one that a person asked for."""

    key: RunKey
    retry_at_us: int


class Horizon(Struct, frozen=True):
    """The timers and retries of some partitions, in columns: hundreds of thousands are usual."""

    job_ids: bytes  # 16 for each
    due_us: "array[int]"
    versions: "array[int]"
    retries: tuple[Retry, ...] = ()

    def __len__(self) -> int:
        return len(self.due_us)

    def __iter__(self) -> Iterator[tuple[UUID, int, int]]:
        for index, (due_us, version) in enumerate(zip(self.due_us, self.versions, strict=True)):
            start = index * UUID_BYTES
            yield UUID(bytes=self.job_ids[start : start + UUID_BYTES]), due_us, version


class ClaimedRun(Struct, frozen=True):
    """A run to arm, and the token of its first attempt."""

    due_us: int
    token: int


class Claim(Struct, frozen=True, kw_only=True):
    """What arming wants of one timer: from this due time, under this version, to the next."""

    job_id: UUID
    tenant_id: UUID
    version: int
    due_us: int
    next_due_us: int | None
    runs: tuple[ClaimedRun, ...]
    skip: Skip | None = None


class ClaimedRetry(Struct, frozen=True):
    """A retry to arm, and the token of its attempt."""

    key: RunKey
    retry_at_us: int
    token: int


class TimerStore(Protocol):
    """Timers: the *load* and *arm* stages.

    What arms raises `LeaseLost` when the lease is gone and `FenceRaised` when it names an old
    fence; then nothing was written.
    """

    async def load(self, partitions: Collection[int], until_us: int) -> Horizon:
        """The timers and retries of the partitions up to an instant."""

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        """The definitions of these jobs, without those that are gone."""

    async def arm(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        """Moves the timers and writes the runs, and gives the runs that were *not* won.

        A claim is lost when its timer is no longer at that due time and version, and a run when
        it exists already. After an error the runs that a replay does not win may have been won
        before: `recheck` tells. A job may be claimed once per call.
        """

    async def arm_retries(self, lease: Lease, retries: Sequence[ClaimedRetry]) -> set[RunKey]:
        """Arms waiting runs for their next attempt, and gives those that were *not* won."""

    async def advance(self, lease: Lease, live_since_us: Mapping[int, int]) -> None:
        """Notes, by partition, that no armed or running run is due before an instant.

        A promise of the owner, who must count what it is arming at the moment. Runs that had a
        retry are known without it.
        """

    async def finish(self, lease: Lease, job_ids: Collection[UUID]) -> None:
        """Ends the jobs whose schedule has no further due time, unless they got another."""

    async def pause_gone(self, lease: Lease, job_ids: Collection[UUID]) -> None:
        """Pauses the jobs whose worker wants no more of them."""


class Settled(Struct, frozen=True, kw_only=True):
    """An outcome and what it makes of its run."""

    key: RunKey
    token: int
    state: RunState
    started_at_us: int | None = None
    finished_at_us: int | None = None
    lateness_us: int | None = None
    http_status: int | None = None
    error: str | None = None
    retry_at_us: int | None = None
    skip_reason: SkipReason | None = None


class Adoption(Struct, frozen=True):
    """An unfinished run that goes on under a new token."""

    key: RunKey
    old_token: int
    token: int


class Checked(Struct, frozen=True, kw_only=True):
    """What the database says of a run at the moment."""

    key: RunKey
    state: RunState
    token: int | None
    version: int | None  # of its job; None when that is gone
    heartbeat_at_us: int | None


class RunStore(Protocol):
    """Runs: the *settle* and *sweep* stages."""

    async def settle(self, settled: Sequence[Settled]) -> set[RunKey]:
        """Writes outcomes, and gives the runs whose outcome was stale.

        An outcome counts while its run is live and has its token. Sending it again is not stale.
        """

    async def list_unfinished(
        self, lease: Lease, partitions: Collection[int], limit: int, after: Run | None = None
    ) -> list[Run]:
        """Armed and running runs of partitions that the shard owns, after the last of a page."""

    async def adopt(self, lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        """Makes unfinished runs the shard's own, and gives those that were *not* won."""

    async def recheck(self, keys: Collection[RunKey]) -> list[Checked]:
        """The present state of runs."""


class Registration(Struct, frozen=True):
    """A job to register, and its first due time; None when it has none."""

    job: Job
    due_us: int | None


class Acknowledged(Struct, frozen=True, kw_only=True):
    """The job after a change, and whether the change reached every run that it should.

    `too_late` are the armed runs that were due so soon that they may fire all the same.
    """

    job: Job
    too_late: tuple[RunKey, ...] = ()


class JobFilter(Struct, frozen=True, kw_only=True):
    state: JobState | None = None
    name: str | None = None
    tags: dict[str, str] = {}


class JobStore(Protocol):
    """Jobs of one tenant, for the API."""

    async def register(self, tenant_id: UUID, jobs: Sequence[Registration]) -> set[UUID]:
        """Registers jobs, and gives those whose name another job of the tenant has."""

    async def get(self, tenant_id: UUID, job_id: UUID) -> Job:
        """One job, or `JobNotFound`."""

    async def list_jobs(
        self, tenant_id: UUID, wanted: JobFilter, limit: int, after_name: str = ""
    ) -> list[Job]:
        """Jobs by name, after the last name of a page."""

    async def edit(
        self, tenant_id: UUID, job: Job, due_us: int | None, *, is_rescheduled: bool
    ) -> Acknowledged:
        """Replaces the version before `job.version`, or raises `JobChanged`."""

    async def pause(self, tenant_id: UUID, job_id: UUID) -> Acknowledged:
        """Stops the timer, and skips the runs that are armed."""

    async def resume(self, tenant_id: UUID, job_id: UUID, due_us: int | None) -> Acknowledged:
        """Starts the timer of a paused job."""

    async def delete(self, tenant_id: UUID, job_id: UUID) -> Acknowledged:
        """Removes the job and cancels its runs; its history stays for its retention."""


class RequestedRun(Struct, frozen=True, kw_only=True):
    """A run that a person asks for."""

    key: RunKey
    trigger: Trigger
    backfill_of_us: int | None = None


class HistoryStore(Protocol):
    """Runs of one tenant, for the API."""

    async def get_run(self, tenant_id: UUID, key: RunKey) -> tuple[Run, list[Attempt]]:
        """A run with its attempts, or `RunNotFound`."""

    async def list_runs(
        self, tenant_id: UUID, job_id: UUID, limit: int, before_us: int | None = None
    ) -> list[Run]:
        """The runs of a job, latest first, before the last of a page."""

    async def list_dead(
        self, tenant_id: UUID, limit: int, after: RunKey | None = None
    ) -> list[RunKey]:
        """The runs out of attempts, oldest first, after the last of a page."""

    async def request(self, tenant_id: UUID, runs: Sequence[RequestedRun]) -> set[RunKey]:
        """Puts runs in line for their first attempt, and gives those whose key is taken."""

    async def cancel(self, tenant_id: UUID, key: RunKey) -> bool:
        """Ends a live run; gives whether that was in time to keep it from being sent again."""

    async def retry(self, tenant_id: UUID, keys: Collection[RunKey]) -> set[RunKey]:
        """Puts dead or cancelled runs in line again, and gives those that are neither."""

    async def heartbeat(self, tenant_id: UUID, key: RunKey, token: int) -> bool:
        """Notes that a worker is at it; False when its token is stale."""


class Hint(Struct, frozen=True):
    """A job of a partition has changed, or has a run that wants attention: load it again."""

    partition: int
    job_id: UUID


class HintSource(Protocol):
    """Hints, delivered to whoever opened the source."""

    async def confirm(self) -> None:
        """Returns when every hint of what committed before the call has been delivered.

        Raises `StoreUnavailable` when the source hears nothing any more: open another one.
        """

    async def close(self) -> None:
        """Delivers no more."""


class Stores(Protocol):
    """All parts of one store."""

    @property
    def leases(self) -> LeaseStore: ...
    @property
    def timers(self) -> TimerStore: ...
    @property
    def runs(self) -> RunStore: ...
    @property
    def jobs(self) -> JobStore: ...
    @property
    def history(self) -> HistoryStore: ...
