"""Outcomes: what an attempt came back with, as values.

Invariant: every answer and every failure of the transport is exactly one outcome, and only
`Failed` may be tried again.
"""

from typing import TypeAlias

from msgspec import Struct


class Succeeded(Struct, frozen=True, kw_only=True, tag=True):
    """The worker did it. No HTTP status when it said so by REST."""

    http_status: int | None = None


class Accepted(Struct, frozen=True, kw_only=True, tag=True):
    """The worker has begun (202), will heartbeat, and completes by REST."""

    http_status: int = 202


class Failed(Struct, frozen=True, kw_only=True, tag=True):
    """The attempt failed in a way that another attempt may mend."""

    error: str
    http_status: int | None = None
    retry_after_us: int | None = None  # how long the worker asked us to wait, not yet clamped


class Rejected(Struct, frozen=True, kw_only=True, tag=True):
    """The worker will never do it: the run is dead at once."""

    error: str
    http_status: int | None = None


class Gone(Struct, frozen=True, kw_only=True, tag=True):
    """The worker wants no more runs of this job (410): the run is dead and the job paused."""

    error: str = "the worker answered 410 Gone"
    http_status: int = 410


Outcome: TypeAlias = Succeeded | Accepted | Failed | Rejected | Gone
