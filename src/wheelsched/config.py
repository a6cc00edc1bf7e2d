"""Settings: one struct per component.

Invariant: nothing here changes once it is built. Every time has its unit in its name, and every
setting a default that works, unless only its user can know it.
"""

from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from wheelsched.core.duration import MILLISECOND, MINUTE, SECOND
from wheelsched.core.egress import EgressRules, OwnListener, read_rules
from wheelsched.core.request import MAX_REQUESTED

Positive = Annotated[int, Meta(ge=1)]


class EmbeddedConfig(Struct, frozen=True, kw_only=True):
    """Where the embedded Postgres lives, and how it is reached.

    `home` is the directory that holds its data; by default one in the user's data home.
    `port` opens TCP on the loopback beside the unix socket. `account` is the system account
    that runs the server when the program itself is root, which Postgres refuses to be.
    """

    home: Path | None = None
    port: int | None = None
    account: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    start_timeout_ms: int = 60_000


class ProbeConfig(Struct, frozen=True, kw_only=True):
    """Where a shard shows its metrics and its health."""

    host: str = "127.0.0.1"
    port: int = 0


class LeadConfig(Struct, frozen=True, kw_only=True):
    """How far ahead of their time runs are armed."""

    least_us: int = 4 * SECOND
    headroom: float = 4.0  # a crowd is begun so many times earlier than arming it should take
    haste: float = 2.0  # with less than this of it left, arming rests no more
    first_rate: float = 2_000.0  # runs a second, until the first batches have been measured


class StoreConfig(Struct, frozen=True, kw_only=True):
    """How the database is reached, and as whom.

    The lease has connections of its own: whatever else waits for one, it is renewed. Every
    statement ends after its timeout, on the server too.
    """

    url: str
    role: Literal["shard", "api", "owner"]
    connections: int = 8
    lease_connections: int = 1
    command_timeout_ms: int = 10_000
    lease_timeout_ms: int = 1_500
    connect_timeout_ms: int = 5_000


class EgressConfig(Struct, frozen=True, kw_only=True):
    """The networks that callbacks may go to beside the public one, in CIDR notation.

    Whoever registers jobs can reach whatever is allowed here from where the shards run, except
    `own`: the listeners of this installation.
    """

    allow: tuple[str, ...] = ()
    own: tuple[OwnListener, ...] = ()

    def __post_init__(self) -> None:
        read_rules(self.allow)

    @property
    def rules(self) -> EgressRules:
        return replace(read_rules(self.allow), own=self.own)


class DispatchConfig(Struct, frozen=True, kw_only=True):
    """How workers are reached.

    A request that finds all connections in use waits for one, as long as its own timeout lasts. As
    long as there are no fewer than what `FairnessConfig` lets be in flight, none has to.
    An answer is read up to a bound; in a batch it may be longer by so much for each run.
    """

    connections: int = 2_500
    connections_per_host: int = 250  # of one tenant, to one scheme, host and port
    idle_timeout_ms: int = 45_000  # less than what balancers wait, mostly a minute
    connect_timeout_ms: int = 5_000  # to look a name up, and then to be connected
    answer_bytes: int = 64 * 1024
    answer_bytes_per_run: int = 256
    lookup_threads: int = 128  # a name server that hangs holds one for each of its names
    egress: EgressConfig = EgressConfig()


class BreakerConfig(Struct, frozen=True, kw_only=True):
    """When the requests to one origin of one tenant stop, and for how long."""

    failures: Positive = 10  # in a row
    open_initial_ms: Positive = 1_000  # doubles with every probe that fails
    open_max_ms: Positive = 60_000


class PaceConfig(Struct, frozen=True, kw_only=True):
    """How fast the late lane goes: `factor` times the rate of on-time runs, at least `floor`."""

    factor: Positive = 2
    floor: Positive = 1_000  # runs per second
    smoothing_ms: Positive = 10_000  # how long a change of the on-time rate takes to count


class FairnessConfig(Struct, frozen=True, kw_only=True):
    """Who is dispatched next, and how much at once.

    What is bounded in flight are requests: for a target without batches, runs. A request is what
    holds a connection here and a place there; how many runs a target takes in one is its own
    choice, and half a million for one that takes 500 have to flow. Half of each bound is for
    on-time runs alone. Turns between tenants, and what may wait, count in runs.
    """

    in_flight: Positive = 2_000
    in_flight_per_tenant: Positive = 1_000
    in_flight_per_origin: Positive = 250  # of one tenant
    quantum: Positive = 10  # runs in one turn of a tenant of weight 1
    max_queued: Positive = 500_000  # runs of one tenant that wait for one origin
    breaker: BreakerConfig = BreakerConfig()
    pace: PaceConfig = PaceConfig()


class ShardConfig(Struct, frozen=True, kw_only=True):
    """How one shard works. `address` is where its metrics are, for whoever looks at `/shards`."""

    address: str | None = None
    lease_ttl_us: int = 5 * SECOND
    lease_margin_us: int = 500 * MILLISECOND
    horizon_us: int = 10 * MINUTE
    refresh_us: int = MINUTE
    confirm_us: int = 250 * MILLISECOND  # between two proofs that no hint is missing
    watch_us: int = SECOND  # between two looks at runs that workers or other shards have in hand
    overdue_us: int = 5 * SECOND  # between two looks at what is due and not armed
    lead: LeadConfig = LeadConfig()
    fairness: FairnessConfig = FairnessConfig()
    max_armed: int = 1_000_000  # runs that are armed and wait for their time, in all
    drain_us: int = 30 * SECOND
    give_up_us: int = 2 * MINUTE  # a partition whose unfinished runs cannot be read for so long


class ApiConfig(Struct, frozen=True, kw_only=True):
    """How the API listens, whom it answers, and how much it reads.

    With `auth="loopback"` programs of this machine need no token: they speak for
    `loopback_tenant_id`. A token is looked up again after `token_cache_ms`, so that a revoked one
    is refused by then. Whoever comes beyond `max_in_flight` requests, or `max_held_bytes` of their
    bodies, is told to come again. `max_connections_per_address` keeps one client from using up
    `max_connections`; raise it behind a proxy, which is one client for all of its own.
    """

    host: str = "127.0.0.1"
    port: int = 8420
    auth: Literal["required", "loopback"] = "required"
    loopback_tenant_id: UUID | None = None
    loopback_requests_per_second: int = 100_000
    token_cache_ms: int = 2_000
    max_header_bytes: int = 16 << 10
    max_bulk_bytes: int = 64 << 20
    max_requested_runs: Positive = MAX_REQUESTED  # of one job, unfinished
    max_in_flight: Positive = 1_000
    max_held_bytes: Positive = 256 << 20
    max_connections: Positive = 2_000
    max_connections_per_address: Positive = 256
    head_timeout_ms: Positive = 10_000
    body_timeout_ms: int = 30_000
    stop_timeout_ms: int = 10_000
    egress: EgressConfig = EgressConfig()  # as the shards have it: what they refuse is refused


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """How much a worker takes on, and how long it waits.

    `concurrency` bounds the handlers that run at once, `max_waiting` the runs that wait for one of
    them or for another attempt of theirs, `max_accepted` the runs that were answered with 202 and
    go on in the background; whatever comes beyond is refused for the moment (503). `threads` carry
    handlers that are not async. `timeout_ms` is taken for the job's own when a callback does not
    name it: a run that was accepted heartbeats three times as often, and one that has another
    attempt waits almost as long.
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


class ClientConfig(Struct, frozen=True, kw_only=True):
    """How long a client of the API waits, and how often it tries.

    `timeout_ms` is for each attempt; between two of them it waits up to `backoff_ms`, twice as
    long each time, and never longer than `max_backoff_ms`.
    """

    timeout_ms: int = 30_000
    max_attempts: int = 5
    backoff_ms: int = 200
    max_backoff_ms: int = 5_000
    connections: int = 20
    max_answer_bytes: int = 64 << 20
