"""The store of timers: loading due times, and claiming them to arm runs.

Invariant: a due time is claimed once, by a shard whose lease exists at that moment.
"""

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Raw, Struct

from wheelsched.core.model import Job, Lane, Run, RunKey
from wheelsched.core.overdue import Unarmed
from wheelsched.core.policies.misfire import Skip
from wheelsched.ports.leases import Lease

UUID_BYTES = 16
NEVER_US = (1 << 63) - 1  # the due time of a timer whose schedule has ended


class Retry(Struct, frozen=True, gc=False):
    """A run that waits for its next attempt, or for one that a person requested."""

    key: RunKey
    retry_at_us: int


class Horizon(Struct, frozen=True):
    """The timers and retries of some partitions, in columns, because there may be many thousands.

    It includes timers at `NEVER_US`: their jobs finish with their last run.
    """

    job_ids: bytes  # 16 bytes each
    due_us: "array[int]"
    versions: "array[int]"
    retries: tuple[Retry, ...] = ()

    def __len__(self) -> int:
        return len(self.due_us)

    def __iter__(self) -> Iterator[tuple[UUID, int, int]]:
        for index, (due_us, version) in enumerate(zip(self.due_us, self.versions, strict=True)):
            yield self.job_id(index), due_us, version

    def job_id(self, index: int) -> UUID:
        """The job of the timer at this index."""
        return UUID(bytes=self.job_ids[index * UUID_BYTES : (index + 1) * UUID_BYTES])


class ClaimedRun(Struct, frozen=True, gc=False):
    """A run to arm, and the token of its first attempt."""

    due_us: int
    token: int
    lane: Lane = Lane.ON_TIME


class Claim(Struct, frozen=True, kw_only=True, gc=False):
    """A claim on one timer: move it from `due_us` to `next_due_us` and insert its runs.

    It holds only if the timer still has this due time and this version.
    """

    job_id: UUID
    tenant_id: UUID
    version: int
    due_us: int
    next_due_us: int | None
    runs: tuple[ClaimedRun, ...]
    skip: Skip | None = None

    @property
    def key(self) -> RunKey:
        """The key of the claimed due time."""
        return RunKey(self.job_id, self.due_us)


class ClaimedRetry(Struct, frozen=True, gc=False):
    """A retry to arm, and the token of its attempt."""

    key: RunKey
    retry_at_us: int
    token: int


class Mark(Struct, frozen=True):
    """The earliest due time of unfinished runs in a partition, with a token that orders marks."""

    live_since_us: int
    token: int


class TimerStore(Protocol):
    """The store of the *load* and *arm* stages.

    Methods that take a lease raise `LeaseLost` if the lease is gone, and `FenceRaised` if its fence
    is old. Then nothing was written.
    """

    async def load(self, partitions: Collection[int], until_us: int) -> Horizon:
        """The timers and retries of the partitions up to an instant."""

    async def reload(
        self,
        job_ids: Collection[UUID],
        until_us: int,
        retries_since_us: Mapping[UUID, int] | None = None,
    ) -> Horizon:
        """The timers and retries of these jobs up to an instant.

        For the jobs in `retries_since_us`, only the retries after the given instant.
        """

    async def oldest_unarmed(self, partitions: Collection[int]) -> list[Unarmed]:
        """The oldest unarmed timer and retry of each partition, whoever owns it."""

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        """The definitions of these jobs; deleted ones are left out."""

    async def read_payloads(self, keys: Collection[RunKey]) -> dict[RunKey, Raw]:
        """The payloads of those runs that have their own."""

    async def arm(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        """Move the timers and insert the runs. Returns the runs that were *not* won.

        A claim is lost if its timer no longer has that due time and version. A run is lost if it
        already exists. The result includes the key of every lost claim. After an error, a replay
        may not win runs that the first call already won: `revalidate` shows which. A job may be
        claimed once per call.
        """

    async def arm_retries(self, lease: Lease, retries: Sequence[ClaimedRetry]) -> list[Run]:
        """Arm waiting runs for their next attempt. Returns the runs that were won.

        After an error, a replay may not win runs that the first call already won: `revalidate`
        shows which.
        """

    async def advance(self, lease: Lease, marks: Mapping[int, Mark]) -> None:
        """Record for each partition that no armed run is due before an instant.

        The owner guarantees this, and must include runs that it is arming at the moment. Runs that
        are running or had a retry are found without it. A token that is not newer than the stored
        one changes nothing.
        """

    async def finish(self, lease: Lease, job_ids: Collection[UUID]) -> None:
        """Finish the jobs whose schedule has no more due times, unless they got a new schedule."""

    async def pause_gone(self, lease: Lease, versions: Mapping[UUID, int]) -> None:
        """Pause the jobs whose worker responded 410, unless they have changed since.

        As with `JobStore.pause`, passed due times that were not armed are skipped, and so are armed
        runs that are not due within a second.
        """
