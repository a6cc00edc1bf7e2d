"""Runs on their way to an end: their outcomes, and what others left unfinished.

Invariant: an outcome changes a run only under the token that its attempt was given.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from wheelsched.core.model import Run, RunKey, RunState, SkipReason
from wheelsched.ports.leases import Lease


class Ending(Struct, frozen=True, kw_only=True, gc=False):
    """How an attempt ended, and what that makes of its run.

    Attempts that came back together share one: a store is told of it once for all of them.
    """

    state: RunState
    started_at_us: int | None = None
    finished_at_us: int | None = None
    lateness_us: int | None = None
    http_status: int | None = None
    error: str | None = None
    retry_at_us: int | None = None
    skip_reason: SkipReason | None = None


class Settled(Struct, frozen=True, gc=False):
    """A run, and the ending of the attempt that was given the token."""

    key: RunKey
    token: int
    ending: Ending


class Adoption(Struct, frozen=True):
    """An unfinished run that goes on under a new token."""

    key: RunKey
    old_token: int
    token: int


class Checked(Struct, frozen=True, kw_only=True):
    """What the database says of a run at the moment."""

    run: Run
    version: int | None  # of its job; None when that is gone
    heartbeat_at_us: int | None  # the latest of the attempt in hand


class RunStore(Protocol):
    """Runs: the *settle* and *sweep* stages."""

    async def settle(self, settled: Sequence[Settled]) -> set[RunKey]:
        """Writes outcomes, and gives the runs whose outcome was stale.

        An outcome counts while its run is live and has its token, by the table of `core.state`: a
        late answer may still end a run that waits for its next attempt. Sending an outcome again
        is not stale. `running` without a status hands a run over: this shard carries it to its end.
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
        """The unfinished runs of partitions that the shard owns: armed, running, and those that
        wait for an attempt. What they are, `recheck` says.

        Of each partition at most `limit`, by due time; those after the run that is given for it.
        With `is_first` only those armed for their first attempt by their schedule.
        """

    async def adopt(self, lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        """Makes unfinished runs the shard's own, and gives those that were *not* won."""

    async def recheck(self, keys: Collection[RunKey]) -> list[Checked]:
        """The present state of runs."""
