"""Ports: what wheelsched asks of the world, and nothing of how it is done.

Invariant: a port names what is needed and never who provides it; it imports no adapter. Every
method of a store may be sent again with the same arguments after an error, and then changes
nothing that the first sending changed. Methods of stores take and give whole batches.

The stores of a shard are `LeaseStore`, `TimerStore`, `RunStore` and `PlanStore`; those of the API
are `JobStore` and `HistoryStore`, which see one tenant at a time. `TenantStore` is the operators',
and both read it. A `Dispatcher` carries callbacks.
"""

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from wheelsched.core.misfire import Skip
from wheelsched.core.model import (
    Attempt,
    Draft,
    Job,
    JobState,
    Lane,
    Run,
    RunKey,
    RunState,
    SkipReason,
    Target,
    Trigger,
)
from wheelsched.core.outcome import Outcome
from wheelsched.errors import JobNotPlanned

UUID_BYTES = 16
NEVER_US = (1 << 63) - 1  # where a timer stands whose schedule has ended


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
    is_leaving: bool  # it wants no partitions any more
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

    async def release(
        self, lease: Lease, partitions: Collection[int], *, is_leaving: bool = False
    ) -> Lease:
        """Hands partitions over to whoever takes them, after every statement in flight.

        Gives the lease to go on with. Of what was sent with the old one, nothing more is written.
        A shard that is leaving keeps its lease, to finish what it has sent.
        """

    async def take_over(self, lease: Lease, shard_id: UUID, renewals: int) -> bool:
        """Ends the lease of a dead shard and frees its partitions, after its last statement.

        Does so only if the lease has expired and was renewed no more than `renewals` times.
        """

    async def leave(self, lease: Lease) -> None:
        """Ends the shard's own lease and frees its partitions."""

    async def read_clock(self) -> int:
        """The time by the database's clock, in microseconds since 1970."""


class Retry(Struct, frozen=True):
    """A run that waits for a further attempt, or for the one that a person asked for."""

    key: RunKey
    retry_at_us: int


class Horizon(Struct, frozen=True):
    """The timers and retries of some partitions, in columns: hundreds of thousands are usual.

    Timers at `NEVER_US` are among them: their jobs are over when their last run is.
    """

    job_ids: bytes  # 16 for each
    due_us: "array[int]"
    versions: "array[int]"
    retries: tuple[Retry, ...] = ()

    def __len__(self) -> int:
        return len(self.due_us)

    def __iter__(self) -> Iterator[tuple[UUID, int, int]]:
        for place, (due_us, version) in enumerate(zip(self.due_us, self.versions, strict=True)):
            yield self.job_id(place), due_us, version

    def job_id(self, place: int) -> UUID:
        """The job of the timer at that place."""
        return UUID(bytes=self.job_ids[place * UUID_BYTES : (place + 1) * UUID_BYTES])


class ClaimedRun(Struct, frozen=True):
    """A run to arm, and the token of its first attempt."""

    due_us: int
    token: int
    lane: Lane = Lane.ON_TIME


class Claim(Struct, frozen=True, kw_only=True):
    """What arming wants of one timer: from this due time, under this version, to the next."""

    job_id: UUID
    tenant_id: UUID
    version: int
    due_us: int
    next_due_us: int | None
    runs: tuple[ClaimedRun, ...]
    skip: Skip | None = None

    @property
    def key(self) -> RunKey:
        """The due time that is claimed."""
        return RunKey(self.job_id, self.due_us)


class ClaimedRetry(Struct, frozen=True):
    """A retry to arm, and the token of its attempt."""

    key: RunKey
    retry_at_us: int
    token: int


class Mark(Struct, frozen=True):
    """From which due time on a partition may have unfinished runs, under a token of its own."""

    live_since_us: int
    token: int


class TimerStore(Protocol):
    """Timers: the *load* and *arm* stages.

    What arms raises `LeaseLost` when the lease is gone and `FenceRaised` when it names an old
    fence; then nothing was written.
    """

    async def load(self, partitions: Collection[int], until_us: int) -> Horizon:
        """The timers and retries of the partitions up to an instant."""

    async def reload(self, job_ids: Collection[UUID], until_us: int) -> Horizon:
        """The timers and retries of these jobs up to an instant."""

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        """The definitions of these jobs, without those that are gone."""

    async def arm(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        """Moves the timers and writes the runs, and gives the runs that were *not* won.

        A claim is lost when its timer is no longer at that due time and version, and a run when
        it exists already. After an error the runs that a replay does not win may have been won
        before: `recheck` tells. A job may be claimed once per call.
        """

    async def arm_retries(self, lease: Lease, retries: Sequence[ClaimedRetry]) -> list[Run]:
        """Arms waiting runs for their next attempt, and gives those that were won, as they are.

        After an error, `recheck` tells which of those that a replay does not win were won before.
        """

    async def advance(self, lease: Lease, marks: Mapping[int, Mark]) -> None:
        """Notes, by partition, that no armed run is due before an instant.

        A promise of the owner, who must count what it is arming at the moment. Runs that are
        running, or had a retry, are known without it. A token that is not newer than the last
        one changes nothing.
        """

    async def finish(self, lease: Lease, job_ids: Collection[UUID]) -> None:
        """Ends the jobs whose schedule has no further due time, unless they got another."""

    async def pause_gone(self, lease: Lease, versions: Mapping[UUID, int]) -> None:
        """Pauses the jobs whose worker wants no more of them, unless they changed since."""


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

    run: Run
    version: int | None  # of its job; None when that is gone
    heartbeat_at_us: int | None


class RunStore(Protocol):
    """Runs: the *settle* and *sweep* stages."""

    async def settle(self, settled: Sequence[Settled]) -> set[RunKey]:
        """Writes outcomes, and gives the runs whose outcome was stale.

        An outcome counts while its run is live and has its token, by the table of `core.state`: a
        late answer may still end a run that waits for its next attempt. Sending an outcome again
        is not stale. `running` without a status hands a run over: this shard carries it to its end.
        """

    async def list_unfinished(
        self, lease: Lease, partitions: Collection[int], limit: int, after: Run | None = None
    ) -> list[Run]:
        """The unfinished runs of partitions that the shard owns, after the last of a page:
        armed, running, and those that wait for an attempt."""

    async def adopt(self, lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        """Makes unfinished runs the shard's own, and gives those that were *not* won."""

    async def recheck(self, keys: Collection[RunKey]) -> list[Checked]:
        """The present state of runs."""


class Caller(Struct, frozen=True):
    """On whose behalf something is asked, and who is named for it in the audit."""

    tenant_id: UUID
    actor: str


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


class Deleted(Struct, frozen=True, kw_only=True):
    """The same of a job, or a draft, that is no more."""

    job: Job | Draft
    too_late: tuple[RunKey, ...] = ()


class Unplanned(Struct, frozen=True):
    """A job that its user's own transaction has written, or removed, and that a shard has to see
    to: by the place in the list of those. Without a draft it is gone, or was planned since."""

    number: int
    job_id: UUID
    draft: Draft | None


class Plan(Struct, frozen=True, kw_only=True):
    """What a shard makes of a draft: a job with its first due time, or the reason why not."""

    number: int
    draft: Draft
    registration: Registration | None = None
    error: str | None = None


class Planned(Struct, frozen=True):
    """Which jobs are planned now, and which are refused. The others are as they were."""

    accepted: frozenset[UUID]
    refused: frozenset[UUID]


Judge = Callable[[Draft], Registration]  # or `InvalidDocument` and its like


class PlanStore(Protocol):
    """Jobs that applications write in transactions of their own: the *plan* stage.

    What writes raises `LeaseLost` or `FenceRaised`, and then has written nothing.
    """

    async def list_unplanned(self, partitions: Collection[int], limit: int) -> list[Unplanned]:
        """What is to be seen to in these partitions, one-offs by their due time first."""

    async def plan(self, lease: Lease, plans: Sequence[Plan]) -> Planned:
        """Gives drafts their definitions and timers, or their refusal.

        A draft that is another by now, or that somebody is changing, is left as it is. What would
        exceed the quota of its tenant is refused.
        """

    async def clear(self, lease: Lease, numbers: Collection[int]) -> None:
        """Removes what jobs that are gone have left: timers, and waiting runs, which are cancelled.

        Strikes them off the list, and those that have been planned since.
        """


class JobFilter(Struct, frozen=True, kw_only=True):
    state: JobState | None = None
    name: str | None = None
    tags: dict[str, str] = {}


def planned(job: Job | Draft) -> Job:
    """The job, or `JobNotPlanned` when it is a draft."""
    if isinstance(job, Draft):
        raise JobNotPlanned(f"the job was refused: {job.error}" if job.error else None)
    return job


class JobStore(Protocol):
    """Jobs of one tenant, for the API. Every change is in the audit when it is there."""

    async def register(self, caller: Caller, jobs: Sequence[Registration]) -> set[UUID]:
        """Registers jobs, and gives those whose name another job of the tenant has.

        Raises `QuotaExceeded` when the tenant would have more jobs than its quota, and
        `TenantNotFound`; then none is registered.
        """

    async def get(self, caller: Caller, job_id: UUID) -> Job:
        """One job, or `JobNotFound`; or `JobNotPlanned`, as for every change of a draft."""

    async def read(self, caller: Caller, job_id: UUID) -> Job | Draft:
        """The same, be it planned or not."""

    async def list_jobs(
        self, caller: Caller, wanted: JobFilter, limit: int, after_name: str = ""
    ) -> list[Job | Draft]:
        """Jobs by name, after the last name of a page."""

    async def edit(
        self, caller: Caller, job: Job, due_us: int | None, *, is_rescheduled: bool
    ) -> Acknowledged:
        """Replaces the version before `job.version`, or raises `JobChanged`."""

    async def pause(self, caller: Caller, job_id: UUID) -> Acknowledged:
        """Stops the timer, and skips the runs that are armed."""

    async def resume(self, caller: Caller, job_id: UUID, due_us: int | None) -> Acknowledged:
        """Starts the timer of a paused job."""

    async def delete(self, caller: Caller, job_id: UUID) -> Deleted:
        """Removes the job, or the draft; its history stays for its retention.

        Its armed runs are skipped, those that wait for an attempt cancelled; a running one may end.
        Attempts that are armed and due within a second are too late, first or further ones.
        """


class RequestedRun(Struct, frozen=True, kw_only=True):
    """A run that a person asks for."""

    key: RunKey
    trigger: Trigger
    backfill_of_us: int | None = None


class DeadFilter(Struct, frozen=True, kw_only=True):
    """Runs of a job, and due from an instant until before another, where they are given."""

    job_id: UUID | None = None
    since_us: int | None = None
    until_us: int | None = None


class HistoryStore(Protocol):
    """Runs of one tenant, for the API and for its workers."""

    async def get_run(self, caller: Caller, key: RunKey) -> tuple[Run, list[Attempt]]:
        """A run with its attempts, or `RunNotFound`."""

    async def list_runs(
        self, caller: Caller, job_id: UUID, limit: int, before_us: int | None = None
    ) -> list[Run]:
        """The runs of a job, latest first, before the last of a page."""

    async def list_dead(
        self, caller: Caller, wanted: DeadFilter, limit: int, after: RunKey | None = None
    ) -> list[Run]:
        """The runs out of attempts, oldest first, after the last of a page."""

    async def request(self, caller: Caller, runs: Sequence[RequestedRun]) -> set[RunKey]:
        """Puts runs in line for their first attempt, and gives those whose key is taken."""

    async def cancel(self, caller: Caller, key: RunKey) -> bool:
        """Ends a live run; gives whether that was in time to keep it from being sent again."""

    async def retry(
        self, caller: Caller, keys: Sequence[RunKey], *, delay_us: int = 0, spacing_us: int = 0
    ) -> set[RunKey]:
        """Puts dead or cancelled runs in line again, and gives those that are neither, or
        whose job is gone.

        The first is due after a delay, and each of the others so much after the one before.
        """

    async def heartbeat(self, caller: Caller, key: RunKey, token: int) -> bool:
        """Notes that a worker is at it; False when its token is stale."""

    async def answer(self, caller: Caller, settled: Settled) -> bool:
        """Writes the outcome that a worker reports, as `RunStore.settle` does; False when stale.

        Raises `RunNotFound` when the tenant has no such run.
        """


class KeptAnswer(Struct, frozen=True, kw_only=True):
    """What a request was answered."""

    status: int
    headers: dict[str, str]
    body: bytes


class KeyedRequest(Struct, frozen=True, kw_only=True):
    """What is known of an Idempotency-Key: the request that it came with first.

    With an answer it is done. With a ticket it is the caller's to do, as of its beginning; without
    either somebody else is at it.
    """

    digest: bytes
    begun_at_us: int
    answer: KeptAnswer | None = None
    ticket: int | None = None


class IdempotencyStore(Protocol):
    """Requests of one tenant by the key that their sender gave them, kept for a day."""

    async def begin(
        self, caller: Caller, key: str, digest: bytes, patience_us: int
    ) -> KeyedRequest:
        """Notes that a request is being answered, unless it was, or is.

        Who has been at it for longer than the patience is taken for dead.
        """

    async def keep(self, caller: Caller, key: str, answer: KeptAnswer) -> None:
        """Keeps the answer, the first that there is."""

    async def give_back(self, caller: Caller, key: str, ticket: int) -> None:
        """Lets the next sending do it, as of the same beginning."""

    async def forget(self, caller: Caller, key: str, ticket: int) -> None:
        """Lets the key be as if it had never come."""


class Tenant(Struct, frozen=True, kw_only=True):
    """Who has jobs, and how much of everything."""

    tenant_id: UUID
    name: str
    weight: int = 1  # its share of what is dispatched, against that of others
    job_quota: int = 100_000
    requests_per_second: int = 1_000  # of the API
    secrets: tuple[str, ...] = ()  # `whsec_…`, newest first: two while rotating
    created_at_us: int


class Token(Struct, frozen=True, kw_only=True):
    """What lets a program speak for a tenant. Only the digest of the secret part is known."""

    digest: bytes
    tenant_id: UUID
    name: str
    scopes: tuple[str, ...]
    created_at_us: int
    revoked_at_us: int | None = None


class TenantStore(Protocol):
    """Tenants and their tokens. Changes are an operator's, whose name goes to the audit."""

    async def create(self, actor: str, tenant: Tenant) -> None:
        """Adds a tenant, or raises `TenantNameTaken`."""

    async def edit(self, actor: str, tenant: Tenant) -> None:
        """Replaces all but the id and the birthday of a tenant.

        Raises `TenantNotFound` or `TenantNameTaken`.
        """

    async def read(self, tenant_ids: Collection[UUID]) -> list[Tenant]:
        """These tenants, without those that do not exist."""

    async def list_tenants(self, limit: int, after_name: str = "") -> list[Tenant]:
        """Tenants by name, after the last name of a page."""

    async def add_token(self, actor: str, token: Token) -> None:
        """Adds a token, or raises `TenantNotFound`."""

    async def revoke_token(self, actor: str, digest: bytes) -> Token:
        """Ends a token for good, or raises `TokenNotFound`."""

    async def list_tokens(self, tenant_id: UUID) -> list[Token]:
        """All tokens of a tenant, oldest first, revoked ones too."""

    async def find_token(self, digest: bytes) -> Token | None:
        """The token of a digest, revoked or not: what the API asks before it knows a tenant."""


class Hint(Struct, frozen=True):
    """A job of a partition has changed, or has a run that wants attention: load it again.

    Without a job: the partition became free.
    """

    partition: int
    job_id: UUID | None = None
    is_unplanned: bool = False  # an application wrote or removed it: there is something to plan


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
    def plans(self) -> PlanStore: ...
    @property
    def jobs(self) -> JobStore: ...
    @property
    def history(self) -> HistoryStore: ...
    @property
    def tenants(self) -> TenantStore: ...
    @property
    def idempotency(self) -> IdempotencyStore: ...


class Callback(Struct, frozen=True, kw_only=True):
    """One attempt of one run, as its worker is to see it."""

    key: RunKey
    job_name: str
    payload: bytes  # JSON, sent byte for byte
    secrets: tuple[str, ...]  # of the tenant, newest first: each signs
    scheduled_us: int
    send_at_us: int
    timeout_us: int
    attempt: int  # from 1
    token: int
    trigger: Trigger
    idempotency_key: str


class Route(Struct, frozen=True, eq=False, kw_only=True, weakref=True):
    """Where the callbacks of one target go: one object for each tenant and target.

    Callbacks of one route may share a request, at most `batch` of them.
    """

    tenant_id: UUID
    target: Target
    origin: str  # scheme, host and port: what has a bound and a breaker


class Prepared(Struct, frozen=True, kw_only=True):
    """A callback that is encoded and signed, and waits for its time.

    What is sent long after its time is signed again, and a batch when its runs are known: for
    that it keeps its secrets.
    """

    run_id: str
    idempotency_key: str
    token: int
    send_at_us: int
    timeout_us: int
    secrets: tuple[str, ...]
    content: bytes  # what is sent; on a route with batches, one element of the array


class Dispatcher(Protocol):
    """Carries callbacks to workers: the *arm* stage prepares, the *fire* stage sends."""

    def route(self, tenant_id: UUID, target: Target) -> Route:
        """The route of a target: the same object as long as anybody holds it.

        A target that cannot be used has one too; what is sent there is rejected.
        """

    def prepare(self, route: Route, callback: Callback) -> Prepared:
        """Does ahead of time whatever can be done ahead of time."""

    async def send(
        self, route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> list[Outcome] | None:
        """Sends a batch, one request, and gives the outcome of each of its callbacks, in order.

        Asks `begin` at the moment that the request goes to the socket, however long a connection
        took; nothing is sent if it says no, and nothing given. Every failure is an outcome: it
        raises nothing, and ends by the longest timeout of the batch.
        """
