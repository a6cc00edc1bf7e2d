"""Timers: what is due, and the claims that arm it.

Invariant: a due time is claimed once, by the shard whose lease its statement carries.
"""

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Raw, Struct

from wheelsched.core.misfire import Skip
from wheelsched.core.model import Job, Lane, Run, RunKey
from wheelsched.core.overdue import Unarmed
from wheelsched.ports.leases import Lease

UUID_BYTES = 16
NEVER_US = (1 << 63) - 1  # where a timer stands whose schedule has ended


class Retry(Struct, frozen=True, gc=False):
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


class ClaimedRun(Struct, frozen=True, gc=False):
    """A run to arm, and the token of its first attempt."""

    due_us: int
    token: int
    lane: Lane = Lane.ON_TIME


class Claim(Struct, frozen=True, kw_only=True, gc=False):
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


class ClaimedRetry(Struct, frozen=True, gc=False):
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

    async def reload(
        self,
        job_ids: Collection[UUID],
        until_us: int,
        retries_since_us: Mapping[UUID, int] | None = None,
    ) -> Horizon:
        """The timers and retries of these jobs up to an instant; of the jobs that are given with
        another one, only the retries after that."""

    async def oldest_unarmed(self, partitions: Collection[int]) -> list[Unarmed]:
        """What has waited longest to be armed in each of the partitions, whoever owns it."""

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        """The definitions of these jobs, without those that are gone."""

    async def read_payloads(self, keys: Collection[RunKey]) -> dict[RunKey, Raw]:
        """The payloads of those of the runs that have one of their own."""

    async def arm(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        """Moves the timers and writes the runs, and gives the runs that were *not* won.

        A claim is lost when its timer is no longer at that due time and version, and a run when
        it exists already. Of a lost claim its own key is given too, whatever it was for. After an
        error the runs that a replay does not win may have been won before: `recheck` tells. A job
        may be claimed once per call.
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
        """Pauses the jobs whose worker wants no more of them, unless they changed since.

        As with `JobStore.pause`, due times that have passed and were not armed are skipped, and so
        are armed runs that are not due within a second.
        """
