"""What the checker reads: plain records, each of which is one line of JSON.

Times. `…at_us` and `…_us` of requests, arrivals, faults and ownerships are microseconds of a
*reference* clock that never steps: the simulation's own, or the host's. Due times, and the times in
the tables, are the database's; `offsets` says how far that clock is ahead, from which instant on.

The three logs:

- `requests`: what clients asked for, and whether they know that it was done. `failed` was not done,
  `unknown` may have been. Apart from them, `trespasses`: what they asked for of another tenant.
- `arrivals`: what workers received, written before they answered, and what they answered.
- the tables at the end: `jobs`, `runs`, `partitions`; and `overwritten`, rows of runs as they were
  before their end, or the token of their claim, was written over.

Beside them, what only the experiment knows: `faults`, the windows in which something was broken on
purpose, `ownerships`, who owned which partition when, and how that ended, and `lives`, when which
process was there to do something. Each may be empty; what it would excuse or forbid is then
neither. After a `loss` the tables do not know what was committed in it: `ownerships` has what was
forgotten nevertheless, and `forgotten` the rows of runs that only the lost state had.
`clock_errors` is what shards said about their clocks: by so much they may be off, as the promises
have it.

A run of a queue *arrives* when a shard hands it out, if the experiment sees that; else when its
worker gets it. `handfuls` is what workers got at once, and `offers` when they were ready for more.

Nothing here knows how the experiment was made: in memory, or of real processes.
"""

from typing import Literal

from msgspec import Struct

Result = Literal["ok", "failed", "unknown"]
Verb = Literal[
    "create",
    "edit",
    "pause",
    "resume",
    "delete",
    "trigger",
    "backfill",
    "cancel",
    "retry",  # of one run that is dead or cancelled
    "redrive",  # of the dead runs of a job
]
Answer = Literal["ok", "failed", "rejected", "accepted", "gone", "none"]
FaultKind = Literal[
    "crash",
    "freeze",
    "store",
    "deaf",
    "clock",
    "join",
    "leave",
    "down",
    "stall",
    "loss",
    "false_death",
    "disconnect",
    "worker",
    "api",
    "link",
]  # a stall is too short to cost anybody a lease: what is late, it explains, and nothing else;
# what was committed in a loss is forgotten: the database went back in time; a false death is one
# that the parent of a living shard has certified; a disconnect ends a lease connection alone: who
# has lost it does not know of others' deaths for a while, and it explains nothing else; the last
# three are of workers that pull, the processes they talk to, and the way from there to the shards:
# they explain that a run waits, and nothing else
Ending = Literal["released", "left", "taken_over", "forgotten"]
FINAL = ("succeeded", "dead", "skipped", "cancelled")  # states of runs


class Schedule(Struct, frozen=True, kw_only=True):
    """Six fields of cron, one instant, or an interval from an anchor.

    Nothing is due before `start_us`, nor after `end_us`, if there is one.
    """

    kind: Literal["cron", "at", "every"]
    cron: str = ""
    timezone: str = "UTC"
    at_us: int = 0
    every_us: int = 0
    anchor_us: int = 0
    jitter_us: int = 0
    start_us: int = 0
    end_us: int | None = None


class Definition(Struct, frozen=True, kw_only=True):
    """What a client wants of a job. `mark` is in the payload, and grows with each edit."""

    schedule: Schedule
    url: str
    mark: int
    overlap: Literal["skip", "queue", "allow", "cancel"] = "skip"
    misfire: Literal["once", "all", "skip"] = "once"
    grace_us: int = 60_000_000
    window_us: int = 3_600_000_000
    max_missed: int = 100
    max_attempts: int = 4
    timeout_us: int = 120_000_000
    queue: str = ""  # where its runs wait for workers that pull; empty if it has a URL
    claim_within_us: int = 0  # how long they do
    is_forbidden: bool = False  # no callback may go to its URL: each run is dead, and never arrives


class Request(Struct, frozen=True, kw_only=True):
    """One call of a client, however often it was sent with its key.

    `due_us` names a run: the one that is cancelled or retried, or was triggered. `filled_us` are
    the due times of the runs that a backfill of [`since_us`, `until_us`) was told to have made, or
    a redrive to have retried.

    A call in a transaction of the client's own is answered with its commit, and `failed` when that
    was rolled back. What it wrote counts from `written_us`, when the call itself came back.
    """

    verb: Verb
    job: str
    tenant: str
    sent_us: int
    answered_us: int
    result: Result
    definition: Definition | None = None
    is_rescheduled: bool = False
    is_wrong: bool = False  # what is asked for cannot be meant, and is to be refused
    written_us: int | None = None
    due_us: int | None = None
    in_time: bool = False  # a cancel that was told to have been in time
    since_us: int = 0
    until_us: int = 0
    filled_us: tuple[int, ...] = ()
    is_repeated: bool = False  # sent several times: it may have done more than its answer names
    too_late: tuple[int, ...] = ()  # due times that a change was told not to have reached


class Trespass(Struct, frozen=True, kw_only=True):
    """What a tenant asked for of a job of another, or of its run that is due then.

    It was shown nothing if it was told that there is no such thing. Of what had no answer nobody
    knows; but nothing may have become of it either, and so it is no `Request`.
    """

    verb: Verb | Literal["read"]
    job: str
    tenant: str  # who asked
    at_us: int
    shown: Literal["nothing", "something", "unknown"]
    due_us: int | None = None
    answer: str = ""  # as it came, for who looks into it


class Beat(Struct, frozen=True, kw_only=True, gc=False):
    """A heartbeat of a worker that pulls: when it was sent, for how long, and what it was told."""

    sent_us: int
    answered_us: int
    lease_us: int
    is_held: bool


class Handful(Struct, frozen=True, kw_only=True, gc=False):
    """Runs that a worker got at once, and how many it had asked for by then."""

    worker: str
    at_us: int
    count: int
    credits: int


class Offer(Struct, frozen=True, kw_only=True, gc=False):
    """A time in which a worker was there and had asked for runs of some queues."""

    worker: str
    tenant: str
    queues: tuple[str, ...]
    from_us: int
    until_us: int


class Arrival(Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of one run at a worker. `answered_us` is None while, or if, there is no answer.

    `reported` is what the worker said by itself later on, after `accepted`. What follows it is of
    runs of queues: one that nobody received was lost on its way, and one that was given back has
    not been begun.
    """

    job: str
    tenant: str  # whose worker it is that got it
    signer: str = ""  # whose secret it was signed with; empty where nothing is signed
    due_us: int
    scheduled_us: int
    key: str
    token: int
    attempt: int
    trigger: str
    url: str
    mark: int
    at_us: int
    answer: Answer = "none"
    answered_us: int | None = None
    reported: Literal["ok", "failed"] | None = None
    reported_us: int | None = None
    queue: str = ""  # empty for a callback
    worker: str = ""
    is_pushed: bool = False  # its worker is on a stream, and can be told anything at once
    is_unasked: bool = False  # nobody had asked the shard for it
    received_us: int | None = None
    beats: tuple[Beat, ...] = ()
    given_back_us: int | None = None
    accepted_us: int | None = None  # when the worker knew that its outcome was written
    told_us: int | None = None  # when the worker was told to stop
    left_us: int | None = None  # when no worker had it any more


class JobRow(Struct, frozen=True, kw_only=True):
    job: str
    tenant: str
    partition: int
    state: str
    next_due_us: int | None
    error: str | None = None  # why it was refused


class RunRow(Struct, frozen=True, kw_only=True, gc=False):
    job: str
    due_us: int
    tenant: str
    partition: int
    state: str
    trigger: str
    attempt: int
    token: int | None
    shard: str | None
    armed_at_us: int | None
    finished_at_us: int | None
    skip_reason: str | None
    missed_count: int | None
    missed_since_us: int | None
    backfill_of_us: int | None = None
    attempts_before: int = 0  # of `attempt`, those before it was last retried by hand


class PartitionRow(Struct, frozen=True, kw_only=True):
    partition: int
    epoch: int


class Fault(Struct, frozen=True, kw_only=True):
    """Something that was broken on purpose, and when it was whole again.

    `shard` is one of the names, as in `Ownership`, of the process that broke; None if all did.
    """

    kind: FaultKind
    from_us: int
    until_us: int
    shard: str | None = None


class Ownership(Struct, frozen=True, kw_only=True):
    """An owner of a partition. `until_us` is None for the present one."""

    partition: int
    epoch: int
    shard: str
    from_us: int
    until_us: int | None = None
    ended: Ending | None = None
    is_restored: bool = False  # nobody took it: the database went back to it


class Life(Struct, frozen=True, kw_only=True):
    """A process that is a shard: until it was killed or asked to leave; None while it lives.

    `shards` are the names under which it has had a lease, as in `Ownership`. One that is asked to
    leave takes nothing over any more, from `leaving_us` on, also if it is killed before it is gone.
    """

    from_us: int
    until_us: int | None = None
    leaving_us: int | None = None
    is_killed: bool = False
    is_known: bool = False  # others could see that it was killed: its connections were closed
    shards: tuple[str, ...] = ()

    @property
    def able_until_us(self) -> int | None:
        """Until when it could take something over; None while it can."""
        return self.until_us if self.leaving_us is None else self.leaving_us


class Offset(Struct, frozen=True, kw_only=True):
    """The database's clock minus the reference, from an instant of the reference on."""

    from_us: int
    offset_us: int


class ClockError(Struct, frozen=True, kw_only=True):
    """How far off a shard said that its idea of the database's clock might be."""

    at_us: int
    error_us: int


class History(Struct, frozen=True, kw_only=True):
    """Everything that happened. Nothing was broken or asked for any more from `healed_us` on."""

    started_us: int
    healed_us: int
    ended_us: int
    is_narrow: bool = False  # so few places at a target that its runs wait for each other
    transit_us: int = 0  # how long a request may be on its way before its worker notes it
    requests: tuple[Request, ...]
    arrivals: tuple[Arrival, ...]
    jobs: tuple[JobRow, ...]
    runs: tuple[RunRow, ...]
    partitions: tuple[PartitionRow, ...]
    overwritten: tuple[RunRow, ...] = ()
    forgotten: tuple[RunRow, ...] = ()
    trespasses: tuple[Trespass, ...] = ()
    handfuls: tuple[Handful, ...] = ()
    offers: tuple[Offer, ...] = ()
    faults: tuple[Fault, ...] = ()
    ownerships: tuple[Ownership, ...] = ()
    lives: tuple[Life, ...] = ()
    offsets: tuple[Offset, ...] = ()
    clock_errors: tuple[ClockError, ...] = ()
