"""Queues on the wire: claims, outcomes and heartbeats of workers that pull.

Invariant: a run that is handed out looks the same in every protocol. The answer to a list of
outcomes or heartbeats has one item for each, in the same order.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Raw, Struct

from wheelsched.core.model import Trigger
from wheelsched.core.targets.queue import check_queue
from wheelsched.errors import InvalidField
from wheelsched.values.duration import DAY, MINUTE, SECOND, parse_duration
from wheelsched.wire.run import Token

MAX_ITEMS: Final = 1_000  # of one claim, and of one list of outcomes or heartbeats
MAX_QUEUES: Final = 100  # of one stream
MAX_CREDITS: Final = 100_000  # of one stream
MAX_WAIT_US: Final = MINUTE
DEFAULT_WAIT: Final = "20s"
MIN_LEASE_US: Final = 5 * SECOND
MAX_LEASE_US: Final = 30 * DAY

Label = Annotated[str, Meta(min_length=1, max_length=255)]
RunId = Annotated[str, Meta(max_length=255)]  # it is in the answer, so it has a limit
Lease = Annotated[
    str | None,
    Meta(
        description="How long a heartbeat keeps the run, 5s to 30d. Default: the lease of its "
        "claim or stream, else the timeout of its job.",
        examples=["30s"],
    ),
]


class ClaimRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Claim runs of a queue, and wait for some if there are none."""

    worker_id: Annotated[Label, Meta(description="Name of the worker, of your choice.")]
    claim_id: Annotated[
        Label,
        Meta(
            description="New for each claim. A claim that is sent again with the same id gets "
            "the same runs again."
        ),
    ]
    max_runs: Annotated[int, Meta(ge=1, le=MAX_ITEMS, description="Maximum number of runs.")] = 1
    lease: Annotated[
        str | None,
        Meta(
            description="How long a heartbeat keeps a run of this claim, 5s to 30d. Default: the "
            "timeout of its job. Before the first heartbeat it is 5 s.",
            examples=["30s"],
        ),
    ] = None
    wait: Annotated[
        str, Meta(description="How long to wait for the first run, up to 1m.", examples=["20s"])
    ] = DEFAULT_WAIT


class ClaimedRun(Struct, frozen=True, kw_only=True, gc=False):
    """A run that is handed to a worker."""

    run_id: str
    job_id: UUID
    job_name: Annotated[str, Meta(description="Name of the job.")]
    queue: Annotated[str, Meta(description="Queue of the run.")]
    scheduled_at: str
    attempt: Annotated[int, Meta(description="Number of the attempt, starting at 1.")]
    fencing_token: Annotated[
        int, Meta(description="Token of the attempt, for its outcome and its heartbeats.")
    ]
    idempotency_key: Annotated[str, Meta(description="The same for every attempt of the run.")]
    trigger: Trigger
    timeout_ms: Annotated[int, Meta(description="Timeout of the job, in milliseconds.")]
    traceparent: Annotated[str | None, Meta(description="W3C trace context.")] = None
    lease_expires_at: Annotated[
        str,
        Meta(description="When the worker loses the run if it sends no outcome or heartbeat."),
    ]
    payload: Annotated[Raw, Meta(description="Payload of the job, byte for byte.")]


class ClaimAnswer(Struct, frozen=True, kw_only=True):
    """The runs of a claim; none if the wait is over."""

    runs: Annotated[list[ClaimedRun], Meta(description="At most `max_runs`.")]


class OutcomeItem(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """How an attempt ended."""

    run_id: RunId
    token: Token
    ok: Annotated[bool, Meta(description="True if the run succeeded.")]
    error: Annotated[str, Meta(description="Why the attempt failed.")] = ""
    retry: Annotated[bool, Meta(description="False to rule out another attempt.")] = True
    retry_after: Annotated[
        str | None, Meta(description="Minimum wait before the next attempt.", examples=["30s"])
    ] = None
    too_early: Annotated[
        bool, Meta(description="True if the worker did not begin the attempt.")
    ] = False
    gone: Annotated[
        bool,
        Meta(description="True to pause the job; the run is dead. Like a response with 410."),
    ] = False


class OutcomeAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Whether an outcome counts."""

    run_id: str
    accepted: Annotated[bool, Meta(description="True if the outcome was written.")]
    reason: Annotated[str | None, Meta(description="Why the outcome does not count.")] = None


class HeartbeatItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker is still processing a run."""

    run_id: RunId
    token: Token
    lease: Lease = None


class HeartbeatAnswer(Struct, frozen=True, kw_only=True, gc=False):
    """Whether the worker still has the run."""

    run_id: str
    held: Annotated[
        bool, Meta(description="False if the run has ended or has a newer attempt: stop.")
    ]
    cancel: Annotated[bool, Meta(description="True if the run was cancelled: stop.")]


class ReturnedItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that the worker has not begun and gives back."""

    run_id: RunId
    token: Token


class GiveBackRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Give back runs of a claim that the worker has not begun."""

    worker_id: Annotated[Label, Meta(description="Name of the worker, as in the claim.")]
    claim_id: Annotated[Label, Meta(description="Id of the claim that these runs belong to.")]
    items: Annotated[list[ReturnedItem], Meta(max_length=MAX_ITEMS)]


class QueueAnswer(Struct, frozen=True, kw_only=True):
    """A queue and its workers, as this API process sees them."""

    queue: Annotated[str, Meta(description="Name of the queue.")]
    depth: Annotated[int, Meta(description="Number of due runs that wait for a worker.")]
    oldest_at: Annotated[
        datetime | None, Meta(description="Due time of the run that has waited longest.")
    ]
    oldest_age_ms: Annotated[
        int | None, Meta(description="How long that run has waited, in milliseconds.")
    ]
    workers: Annotated[int, Meta(description="Workers connected to this API process.")]
    credits: Annotated[int, Meta(description="Runs that these workers would take now.")]


class QueuesAnswer(Struct, frozen=True, kw_only=True):
    """The queues of the tenant."""

    items: list[QueueAnswer]


OutcomeItems = Annotated[list[OutcomeItem], Meta(max_length=MAX_ITEMS)]
HeartbeatItems = Annotated[list[HeartbeatItem], Meta(max_length=MAX_ITEMS)]


def read_queues(names: Sequence[str]) -> list[str]:
    """The queues of a stream, sorted, or `InvalidField`."""
    return sorted({check_queue(name, pointer=f"/queues/{i}") for i, name in enumerate(names)})


def read_lease(text: str | None, *, pointer: str) -> int | None:
    """A lease in microseconds, or `InvalidField`."""
    if text is None:
        return None
    lease_us = parse_duration(text, pointer=pointer)
    if not MIN_LEASE_US <= lease_us <= MAX_LEASE_US:
        raise InvalidField("a lease must be from 5s to 30d", pointer=pointer)
    return lease_us


def read_wait(text: str, *, pointer: str) -> int:
    """A wait in microseconds, or `InvalidField`."""
    wait_us = parse_duration(text, pointer=pointer)
    if wait_us > MAX_WAIT_US:
        raise InvalidField("a wait must be at most 1m", pointer=pointer)
    return wait_us
