"""Configuration: one frozen struct per component.

Invariant: a config never changes once built. Every time has its unit in its name, and every setting
has a working default unless only the operator can know it.
"""

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from wheelsched.core.request import MAX_REQUESTED
from wheelsched.core.targets.egress import EgressRules, OwnListener, read_rules
from wheelsched.values.duration import MILLISECOND, MINUTE, SECOND

Positive = Annotated[int, Meta(ge=1)]


class EmbeddedConfig(Struct, frozen=True, kw_only=True):
    """Where the embedded Postgres keeps its data, and how it is reached.

    `home` holds the data directory; the default is in the user's data home. `port` opens TCP on
    loopback in addition to the Unix socket. `account` is the system account that runs the server
    when the program runs as root, because Postgres refuses to run as root.
    """

    home: Path | None = None
    port: int | None = None
    account: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    start_timeout_ms: int = 60_000


class ProbeConfig(Struct, frozen=True, kw_only=True):
    """The address of a shard's probe: metrics and health."""

    host: str = "127.0.0.1"
    port: int = 0


class LeadConfig(Struct, frozen=True, kw_only=True):
    """How far ahead of their due time runs are armed."""

    least_us: int = 4 * SECOND
    headroom: float = 4.0  # arming of a hot second starts this many times earlier than needed
    haste: float = 2.0  # with less than this of it left, arming rests no more
    first_rate: float = 2_000.0  # runs a second, until the first batches have been measured


class StoreConfig(Struct, frozen=True, kw_only=True):
    """The database connections of a process.

    The lease has connections of its own, so that renewing it never waits for other work. Every
    statement has a timeout, enforced on the server too.
    """

    url: str
    role: Literal["shard", "api", "owner"]
    connections: int = 8
    lease_connections: int = 1
    command_timeout_ms: int = 10_000
    lease_timeout_ms: int = 1_500
    connect_timeout_ms: int = 5_000


class EgressConfig(Struct, frozen=True, kw_only=True):
    """Networks in CIDR notation that callbacks may reach in addition to the public one.

    Anyone who can register jobs can reach these networks from the shards, except the listeners in
    `own`, which belong to this installation.
    """

    allow: tuple[str, ...] = ()
    own: tuple[OwnListener, ...] = ()

    def __post_init__(self) -> None:
        read_rules(self.allow)

    @property
    def rules(self) -> EgressRules:
        return replace(read_rules(self.allow), own=self.own)


class DispatchConfig(Struct, frozen=True, kw_only=True):
    """HTTP connections to workers.

    A request that finds all connections in use waits for one until its own timeout. None has to
    wait while there are at least as many connections as `FairnessConfig` allows requests in flight.
    A response is read up to `answer_bytes`, plus `answer_bytes_per_run` for each run of a batch.
    """

    connections: int = 2_500
    connections_per_host: int = 250  # per tenant, scheme, host and port
    idle_timeout_ms: int = 45_000  # shorter than the usual 60 s of load balancers
    connect_timeout_ms: int = 5_000  # for the DNS lookup, and again for the connection
    answer_bytes: int = 64 * 1024
    answer_bytes_per_run: int = 256
    lookup_threads: int = 128  # a hanging name server blocks one per name
    egress: EgressConfig = EgressConfig()


class BreakerConfig(Struct, frozen=True, kw_only=True):
    """When the circuit breaker of one tenant and origin opens, and for how long."""

    failures: Positive = 10  # consecutive
    open_initial_ms: Positive = 1_000  # doubles with every failed probe
    open_max_ms: Positive = 60_000


class BacklogRateConfig(Struct, frozen=True, kw_only=True):
    """Rate limit of the late lane: `factor` times the rate of on-time runs, at least `floor`."""

    factor: Positive = 2
    floor: Positive = 1_000  # runs per second
    smoothing_ms: Positive = 10_000  # smoothing window of the on-time rate


class FairnessConfig(Struct, frozen=True, kw_only=True):
    """Which run is sent next, and how many requests may be in flight.

    In-flight limits count requests, because a request is what holds a connection and a slot at the
    worker; without batches that is one run. Half of each limit is reserved for on-time runs.
    Round-robin turns and queue limits count runs.
    """

    in_flight: Positive = 2_000
    in_flight_per_tenant: Positive = 1_000
    in_flight_per_origin: Positive = 250  # per tenant
    quantum: Positive = 10  # runs per round-robin turn of a tenant with weight 1
    max_queued: Positive = 500_000  # runs per tenant and origin
    breaker: BreakerConfig = BreakerConfig()
    backlog_rate: BacklogRateConfig = BacklogRateConfig()


class QueueConfig(Struct, frozen=True, kw_only=True):
    """Runs that wait for workers that pull.

    A run that waits with its request takes some KB. Beyond `idle_runs` of a queue that has had no
    credits for `idle_us`, beyond `FairnessConfig.max_queued` of any queue, and beyond the limits
    `max_waiting…` of a tenant and of the shard, runs are parked: only what identifies them stays in
    memory. Beyond `max_parked` of one queue, or `max_parked_of_tenant` of all queues of a tenant,
    they die. Beyond `max_parked_of_shard`, those of tenants with more than an equal part die.
    """

    idle_us: int = 10 * SECOND
    idle_runs: Positive = 10_000
    max_waiting_of_tenant: Positive = 500_000
    max_waiting_of_shard: Positive = 1_000_000
    max_waiting_bytes: Positive = 1 << 30  # of the shard; large requests are parked first
    max_parked: Positive = 1_000_000
    max_parked_of_tenant: Positive = 2_000_000
    max_parked_of_shard: Positive = 4_000_000
    look_us: int = SECOND  # how often runs are checked that wait
    return_us: int = 50 * MILLISECOND  # how often parked runs are brought back to workers
    shown: Positive = 100  # queues in the metrics, the longest first


class RetryConfig(Struct, frozen=True, kw_only=True):
    """Backoff of a shard's store retries; the pause doubles each time."""

    first_pause_ns: int = 50 * MILLISECOND * 1_000
    longest_pause_ns: int = SECOND * 1_000  # within the 3 s in which firing must resume


class ArmConfig(Struct, frozen=True, kw_only=True):
    """Arming: batch sizes, the forecast, and limits per job."""

    batch: Positive = 1_000
    small_batch: Positive = 250  # outside a hot second: a batch delays the others
    step_us: int = 100 * MILLISECOND  # due times within one step of the lead are armed together
    forecast_s: int = 120  # half a million runs take about a minute
    forecast_every_us: int = SECOND
    decide_slice: int = 60  # jobs decided about in one loop iteration
    build_slice: int = 20  # requests built in one loop iteration
    read_slice: int = 250  # definitions or payloads read in one statement
    armed_per_job: int = 20_000  # beyond it retries and requested runs of the job are held back
    armed_bytes_per_job: int = 64 << 20  # likewise, by the size of their requests
    armed_at_least: int = 100
    armed_singly: int = 50  # reserved for single runs: a trigger passes a backlog of backfills
    at_once: int = 2  # concurrent batches when time is short
    behind_at_once: int = 4  # concurrent batches when already late, because they mostly wait
    urgent_us: int = 2 * SECOND  # due times within it, or the minimum lead, are armed at once


class FireConfig(Struct, frozen=True, kw_only=True):
    """How much *fire* does in one loop iteration, and how *revalidate* reads runs."""

    admit_slice: int = 400  # runs decided about in one loop iteration
    admit_per_tenant: int = 100  # of them of one tenant, before the next tenant
    start_slice: int = 32  # requests begun in one loop iteration
    hand_out_slice: int = 2_000  # runs handed to workers that pull in one loop iteration
    flowing_us: int = 100 * MILLISECOND  # after a request was begun, others are about to be
    untrusted_us: int = 50 * MILLISECOND  # between two looks at a lease that is not trusted
    read_batch: int = 1_000  # runs that are revalidated together
    read_per_job: int = 250  # of them of one job, while others wait
    compare_slice: int = 100  # revalidated runs compared in one loop iteration
    rebuild_slice: int = 20  # requests rebuilt in one loop iteration
    large_job_every_us: int = 10 * SECOND  # how often a job with very many runs is read as a whole


class SettleConfig(Struct, frozen=True, kw_only=True):
    """Settling: how results are written."""

    batch: Positive = 1_000  # runs; a request may bring some more
    backed_up_at: int = 10_000  # results waiting; beyond that, work that can wait does
    at_once: int = 2  # batches being written: one is built while the database writes the other
    linger_ns: int = 20 * MILLISECOND * 1_000  # how long a result waits for others
    slice: int = 100  # runs followed up in one loop iteration, or those of one request
    give_way_us: int = 2 * SECOND  # how long results let due runs go first, in one stretch
    finish_ns: int = SECOND * 1_000  # how long a finished job waits for others


class LoadConfig(Struct, frozen=True, kw_only=True):
    """Loading timers and planning drafts."""

    slice: int = 2_000  # timers put into the wheel in one loop iteration
    backed_up_ns: int = SECOND * 1_000  # how long a refresh waits for settle to catch up
    long_us: int = 20 * MILLISECOND  # after a reload that took longer, loading rests as long
    large_job: int = 1_000  # waiting runs of one job; a hint does not read more of them again
    commit_us: int = 30 * SECOND  # from the instant in a change until every process sees it
    plan_batch: int = 500
    plan_slice: int = 20  # drafts validated in one loop iteration
    replan_us: int = SECOND  # until drafts that were locked are looked at again


class RecoveryConfig(Struct, frozen=True, kw_only=True):
    """Recovery: finding and adopting orphans, and polling external runs."""

    page: int = 5_000  # unfinished runs, of all partitions together
    most_compared: int = 20_000  # armed runs; with more, the comparison waits
    batch: int = 1_000  # adopted runs; no hand-over begins before a batch has ended
    at_once: int = 2  # batches under way: one is adopted while the requests of another are built
    build_slice: int = 20  # requests built in one loop iteration
    look_batch: int = 1_000  # external runs that are looked at together


class ShardConfig(Struct, frozen=True, kw_only=True):
    """Settings of one shard. `address` is its metrics address, shown in `/shards`."""

    address: str | None = None
    lease_ttl_us: int = 5 * SECOND
    lease_margin_us: int = 500 * MILLISECOND
    horizon_us: int = 10 * MINUTE
    refresh_us: int = MINUTE
    confirm_us: int = 250 * MILLISECOND  # interval of the check that no hint is missing
    watch_us: int = SECOND  # interval of polling runs held by workers or other shards
    overdue_us: int = 5 * SECOND  # interval of the check for overdue timers
    lead: LeadConfig = LeadConfig()
    load: LoadConfig = LoadConfig()
    arm: ArmConfig = ArmConfig()
    fire: FireConfig = FireConfig()
    fairness: FairnessConfig = FairnessConfig()
    queue: QueueConfig = QueueConfig()
    settle: SettleConfig = SettleConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    max_armed: int = 1_000_000  # armed runs that are not yet due, in total
    drain_us: int = 30 * SECOND
    waits_for_workers: bool = True  # to drain: until workers that pull have ended their runs
    give_up_us: int = 2 * MINUTE  # releases a partition whose runs are unreadable this long


class GrpcConfig(Struct, frozen=True, kw_only=True):
    """Listener and limits of the API by gRPC.

    A message of a worker may have up to `max_message_bytes`. A connection without a reaction to a
    ping within `ping_timeout_ms` is closed. So is one that does not speak HTTP/2 within
    `handshake_ms`, or has had no call for `idle_ms`.
    """

    host: str = "127.0.0.1"
    port: int = 8422
    max_message_bytes: Positive = 4 << 20
    max_calls: Positive = 20_000  # at once, including streams
    max_calls_per_connection: Positive = 1_000
    ping_ms: Positive = 20_000
    ping_timeout_ms: Positive = 10_000
    handshake_ms: Positive = 10_000
    idle_ms: Positive = 120_000

    @property
    def address(self) -> str:
        """HOST:PORT, as clients write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ApiConfig(Struct, frozen=True, kw_only=True):
    """Listener, authentication and limits of the API.

    With `auth="loopback"`, local programs need no token and act as `loopback_tenant_id`. Tokens are
    cached for `token_cache_ms`, so a revoked token is rejected within that time. Requests beyond
    `max_in_flight`, or beyond `max_held_bytes` of request bodies, get 503 with `Retry-After`.
    `max_connections_per_address` keeps one client from using up `max_connections`; raise it behind
    a proxy, whose clients share one address. Workers that pull do not count for it once their token
    is known, as long as they have at most five sixths of `max_connections`.
    """

    host: str = "127.0.0.1"
    port: int = 8420
    auth: Literal["required", "loopback"] = "required"
    loopback_tenant_id: UUID | None = None
    loopback_requests_per_second: int = 100_000
    token_cache_ms: int = 2_000
    max_header_bytes: int = 16 << 10
    max_bulk_bytes: int = 64 << 20
    max_requested_runs: Positive = MAX_REQUESTED  # unfinished requested runs per job
    max_in_flight: Positive = 1_000
    max_held_bytes: Positive = 256 << 20
    max_connections: Positive = 12_000  # ten thousand workers that pull, and others
    max_connections_per_address: Positive = 256
    head_timeout_ms: Positive = 10_000
    body_timeout_ms: int = 30_000
    stop_timeout_ms: int = 10_000
    egress: EgressConfig = EgressConfig()  # same as the shards', to reject what they would
    grpc: GrpcConfig | None = None


class LinkConfig(Struct, frozen=True, kw_only=True):
    """The links between shards and the processes that hand out their runs.

    Both sides send a keep-alive every tick, and cut a link after `silent_ticks` without one. With
    more than `full_bytes` to send, a shard hands out nothing; with more than `max_buffered_bytes`,
    the link is cut. `host` and `port` are those of a shard's listener; `address` is where others
    reach it, if that is different.
    """

    host: str = "127.0.0.1"
    port: int = 0
    address: str | None = None
    tick_ns: Positive = SECOND * 1_000
    silent_ticks: Positive = 3
    full_bytes: Positive = 1 << 20
    max_buffered_bytes: Positive = 256 << 20
    max_unproven: Positive = 32  # connections in the handshake
    max_links: Positive = 1_000
    max_unwritten: Positive = 20_000  # outcomes of one link that a shard is writing
    backoff_ns: Positive = 50 * MILLISECOND * 1_000  # before connecting again; doubles
    max_backoff_ns: Positive = 2 * SECOND * 1_000

    @property
    def is_reachable(self) -> bool:
        """Whether others are given an address to connect to, rather than a wildcard."""
        if self.address is not None:
            return True
        try:
            return not ip_address(self.host).is_unspecified
        except ValueError:  # a name
            return True


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """Concurrency limits and timeouts of a worker.

    `concurrency` limits the handlers that run at once, `max_waiting` the runs that wait for a
    handler or for another attempt of theirs, and `max_accepted` the runs that continue in the
    background after a 202. Runs beyond these limits get 503. `threads` run handlers that are not
    async. `timeout_ms` is the job timeout assumed when a callback does not carry one: an accepted
    run sends three heartbeats per timeout, and a duplicate attempt waits almost as long. A worker
    that pulls sends three heartbeats per `lease_ms`: the time after which its runs are retried if
    it dies.
    """

    concurrency: int = 100
    max_waiting: int = 1_000
    max_accepted: int = 100
    threads: int = 32
    max_body_bytes: int = 16 * 1024 * 1024
    tolerance_ms: int = 300_000
    timeout_ms: int = 120_000
    read_timeout_ms: int = 30_000
    stop_timeout_ms: int = 30_000
    lease_ms: int = 30_000


class ClientConfig(Struct, frozen=True, kw_only=True):
    """Timeouts and retries of the API client.

    `timeout_ms` applies to each attempt. The wait between attempts is at most `backoff_ms`, doubles
    each time, and never exceeds `max_backoff_ms`.
    """

    timeout_ms: int = 30_000
    max_attempts: int = 5
    backoff_ms: int = 200
    max_backoff_ms: int = 5_000
    connections: int = 20
    max_answer_bytes: int = 64 << 20
