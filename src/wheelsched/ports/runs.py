"""The store of runs for a shard: outcomes and takeovers.

Invariant: an outcome changes a run only if it carries the run's current token.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from wheelsched.core.model import Run, RunKey, RunState, SkipReason
from wheelsched.ports.leases import Lease
from wheelsched.ports.work import Attempted


class Ending(Struct, frozen=True, kw_only=True, gc=False):
    """How an attempt ended, and the new state of its run.

    Attempts with the same ending share one object, and a store writes it once for all of them.
    """

    state: RunState
    started_at_us: int | None = None
    finished_at_us: int | None = None
    lateness_us: int | None = None
    http_status: int | None = None
    error: str | None = None
    retry_at_us: int | None = None
    skip_reason: SkipReason | None = None
    is_attempt: bool = True  # False: the run was dead before an attempt; skips have none anyway


class Settled(Struct, frozen=True, gc=False):
    """A run, and the ending of the attempt with this token."""

    key: RunKey
    token: int
    ending: Ending


class Adoption(Struct, frozen=True):
    """An unfinished run that continues under a new token."""

    key: RunKey
    old_token: int
    token: int


class Checked(Struct, frozen=True, kw_only=True):
    """The current state of a run in the database."""

    run: Run
    version: int | None  # of its job; None if the job is deleted
    heartbeat_at_us: int | None  # the latest heartbeat of the current attempt
    lease_us: int | None = None  # how long that keeps the run; None: the timeout of its job
    is_paused: bool = False  # its job is paused; a run that was requested or retried goes on


class RunStore(Protocol):
    """The store of the *settle* and *sweep* stages."""

    async def settle(self, settled: Sequence[Settled]) -> set[RunKey]:
        """Write outcomes, and return the runs whose outcome was stale.

        An outcome counts if its run is unfinished and has its token, by the table of `core.state`.
        A late response may still end a run that waits for its next attempt. Repeating an outcome is
        not stale. `running` without a status marks a run that this shard finishes after it has
        handed over the partition.
        """

    async def list_unfinished(
        self,
        lease: Lease,
        partitions: Collection[int],
        limit: int,
        after: Mapping[int, RunKey] | None = None,
        *,
        is_first: bool = False,
    ) -> list[RunKey]:
        """The unfinished runs of the shard's partitions: armed, running or waiting for an attempt.

        At most `limit` per partition, by due time, starting after the run given in `after`. With
        `is_first`, only scheduled runs armed for their first attempt. `revalidate` returns their
        state.
        """

    async def adopt(self, lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        """Take over unfinished runs. Returns those that were *not* won."""

    async def forget_heartbeats(self, returned: Mapping[Attempted, int]) -> None:
        """Forget the heartbeats of workers that have given back their runs, up to that time."""

    async def revalidate(self, keys: Collection[RunKey]) -> list[Checked]:
        """The current state of runs."""
