"""The messages of the stream, subprotocol `wheelsched.pull.v1`: JSON in WebSocket text frames.

Invariant: every message is an object with a `type`. docs/QUEUES.md describes each of them.
"""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from wheelsched.wire.queue import (
    MAX_CREDITS,
    MAX_ITEMS,
    MAX_QUEUES,
    ClaimedRun,
    HeartbeatAnswer,
    HeartbeatItem,
    Label,
    OutcomeAnswer,
    OutcomeItem,
    ReturnedItem,
)

SUBPROTOCOL: Final = "wheelsched.pull.v1"
PATH: Final = "/stream"
MAX_MESSAGE_BYTES: Final = 8 << 20  # from a worker
MAX_FRAME_BYTES: Final = 1 << 20  # of runs, to a worker; a single run may be larger

Credits = Annotated[int, Meta(ge=0, le=MAX_CREDITS)]


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """The first message of a worker."""

    worker_id: Label
    queues: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_QUEUES)]
    credits: Credits = 0
    lease: str | None = None  # of heartbeats without their own


class AddCredits(Struct, frozen=True, kw_only=True, tag="credits"):
    """The worker takes this many more runs."""

    credits: Credits


class Outcomes(Struct, frozen=True, kw_only=True, tag="outcomes"):
    """Attempts that ended. `credits` are added as by `credits`."""

    id: int
    items: Annotated[list[OutcomeItem], Meta(max_length=MAX_ITEMS)]
    credits: Credits = 0


class Heartbeats(Struct, frozen=True, kw_only=True, tag="heartbeats"):
    """Runs that the worker is still processing."""

    id: int
    items: Annotated[list[HeartbeatItem], Meta(max_length=MAX_ITEMS)]


class GiveBack(Struct, frozen=True, kw_only=True, tag="give_back"):
    """Runs that the worker has not begun."""

    items: Annotated[list[ReturnedItem], Meta(max_length=MAX_ITEMS)]


class Stop(Struct, frozen=True, tag="stop"):
    """The worker takes no more runs."""


class Alive(Struct, frozen=True, tag="alive"):
    """Sent by both sides when they have nothing else to say."""


WorkerMessage: TypeAlias = Hello | AddCredits | Outcomes | Heartbeats | GiveBack | Stop | Alive


class Welcome(Struct, frozen=True, kw_only=True, tag="welcome"):
    """The answer to `hello`."""

    alive_ms: int
    silence_ms: int
    delivery_lease_ms: int


class Runs(Struct, frozen=True, kw_only=True, tag="runs"):
    """Runs for the worker; each uses up one credit."""

    runs: list[ClaimedRun]


class OutcomesAnswered(Struct, frozen=True, kw_only=True, tag="outcomes"):
    """The answer to `outcomes`, in the same order."""

    id: int
    items: list[OutcomeAnswer]


class HeartbeatsAnswered(Struct, frozen=True, kw_only=True, tag="heartbeats"):
    """The answer to `heartbeats`, in the same order."""

    id: int
    items: list[HeartbeatAnswer]


class Cancel(Struct, frozen=True, kw_only=True, tag="cancel"):
    """Runs that the worker should stop."""

    items: list[ReturnedItem]


class Stopped(Struct, frozen=True, tag="stopped"):
    """The answer to `stop`: no `runs` follow."""


class Goodbye(Struct, frozen=True, kw_only=True, tag="goodbye"):
    """No `runs` follow, and the stream will be closed: connect again, perhaps elsewhere."""

    reason: str


class Refused(Struct, frozen=True, kw_only=True, tag="problem"):
    """The last message before the stream is closed because of an error of the worker."""

    problem: Raw


SchedulerMessage: TypeAlias = (
    Welcome
    | Runs
    | OutcomesAnswered
    | HeartbeatsAnswered
    | Cancel
    | Stopped
    | Goodbye
    | Refused
    | Alive
)

encode: Final = msgspec.json.Encoder().encode
worker_decoder: Final[msgspec.json.Decoder[WorkerMessage]] = msgspec.json.Decoder(WorkerMessage)
scheduler_decoder: Final[msgspec.json.Decoder[SchedulerMessage]] = msgspec.json.Decoder(
    SchedulerMessage
)
ALIVE: Final = encode(Alive())
