"""The store as the stages see it: every call is retried until it succeeds, under the lease.

Invariant: a call returns only what the store has confirmed. The pauses between attempts grow.
`LeaseLost` and `DatabaseWentBack` are raised at once and end the shard. A batch that the store
rejects permanently is halved until the item at fault is alone. A claim that an earlier attempt
committed, but whose answer was lost, counts as won: the token of the run shows it.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from random import Random
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

import structlog
from msgspec import Raw, Struct, field

from wheelsched.config import RetryConfig
from wheelsched.core.model import FINAL_STATES, Job, Run, RunKey, RunState
from wheelsched.errors import FenceRaised, LeaseLost, StoreError, StoreFault, StoreTimeout
from wheelsched.ports import (
    Adoption,
    Checked,
    Claim,
    ClaimedRetry,
    Clock,
    Horizon,
    Lease,
    Mark,
    Plan,
    Planned,
    Settled,
    Stores,
    Tenant,
    Unplanned,
)
from wheelsched.ports.work import Attempted
from wheelsched.shard.ownership.ownership import Ownership
from wheelsched.vitals import Vitals

log = structlog.get_logger("wheelsched.shard")

Value = TypeVar("Value")
Item = TypeVar("Item")
Ask = Callable[[Lease, Sequence[Item]], Awaitable[Collection[Value]]]

# An adopted run that was carried stays running.
_CLAIMED_STATES = (RunState.ARMED, RunState.RUNNING)


class Parts(Struct, Generic[Value, Item]):
    """The values returned for the parts of a batch, and the items rejected permanently."""

    values: list[Value] = field(default_factory=list)
    refused: list[Item] = field(default_factory=list)
    is_ambiguous: bool = False  # an attempt failed, and may have been committed


class Claimed(NamedTuple):
    """The runs that were lost, and those of them that the store rejected."""

    lost: set[RunKey]
    refused: set[RunKey]


class ClaimedRetries(NamedTuple):
    """The runs that were won for their next attempt, and those that the store rejected."""

    won: list[Run]
    refused: set[RunKey]


class Settlement(NamedTuple):
    """The runs whose outcome was stale, and those whose outcome the store rejected."""

    stale: set[RunKey]
    refused: set[RunKey]


class RetryingStore:
    """Retries calls to the stores until they succeed."""

    def __init__(
        self, stores: Stores, ownership: Ownership, clock: Clock, vitals: Vitals, random: Random
    ) -> None:
        self._stores = stores
        self._ownership = ownership
        self._clock = clock
        self._vitals = vitals
        self._random = random
        self._config = RetryConfig()

    async def load(self, partitions: Collection[int], until_us: Callable[[], int]) -> Horizon:
        """Reads the horizon of partitions. Each attempt computes the end of the horizon anew."""
        timers = self._stores.timers
        return await self._retry("horizon.load", lambda _: timers.load(partitions, until_us()))

    async def reload(
        self,
        job_ids: Collection[UUID],
        until_us: Callable[[], int],
        retries_since_us: Mapping[UUID, int],
    ) -> Horizon:
        """Reads the horizon of some jobs."""
        timers = self._stores.timers
        return await self._retry(
            "horizon.load", lambda _: timers.reload(job_ids, until_us(), retries_since_us)
        )

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        return await self._retry("job.read", lambda _: self._stores.timers.read_jobs(job_ids))

    async def read_payloads(self, keys: Collection[RunKey]) -> dict[RunKey, Raw]:
        return await self._retry("payload.read", lambda _: self._stores.timers.read_payloads(keys))

    async def read_tenants(self, tenant_ids: Collection[UUID]) -> list[Tenant]:
        return await self._retry("tenant.read", lambda _: self._stores.tenants.read(tenant_ids))

    async def arm(self, claims: Sequence[Claim]) -> Claimed:
        """Claims due times. `lost` also has the key of each lost claim."""
        parts = await self._in_parts("run.arm", claims, self._stores.timers.arm)
        tokens = {
            RunKey(claim.job_id, run.due_us): run.token for claim in claims for run in claim.runs
        }
        refused = {claim.key for claim in parts.refused}
        refused_runs = {
            RunKey(claim.job_id, run.due_us) for claim in parts.refused for run in claim.runs
        }
        lost = set(parts.values)
        if parts.is_ambiguous:
            lost -= {run.key for run in await self._won_before(lost, tokens)}
        self._count_repeated(tokens.keys() - lost - refused_runs)
        return Claimed(refused | refused_runs | lost, refused)

    async def arm_retries(self, retries: Sequence[ClaimedRetry]) -> ClaimedRetries:
        """Claims runs for their next attempt."""
        parts = await self._in_parts("run.arm", retries, self._stores.timers.arm_retries)
        refused = {retry.key for retry in parts.refused}
        tokens = {retry.key: retry.token for retry in retries}
        won = list(parts.values)
        if parts.is_ambiguous:
            lost = tokens.keys() - {run.key for run in won} - refused
            won += await self._won_before(lost, tokens)
        return ClaimedRetries(won, refused)

    async def adopt(self, adoptions: Sequence[Adoption]) -> Claimed:
        """Claims orphaned runs."""
        parts = await self._in_parts("run.adopt", adoptions, self._stores.runs.adopt)
        refused = {adoption.key for adoption in parts.refused}
        tokens = {adoption.key: adoption.token for adoption in adoptions}
        lost = set(parts.values)
        if parts.is_ambiguous:
            lost -= {run.key for run in await self._won_before(lost, tokens)}
        self._count_repeated(tokens.keys() - lost - refused)
        return Claimed(refused | lost, refused)

    async def forget_heartbeats(self, returned: Mapping[Attempted, int]) -> None:
        """Forgets heartbeats of workers that have given back their runs."""
        runs = self._stores.runs
        await self._retry("run.return", lambda _: runs.forget_heartbeats(returned))

    async def revalidate(self, keys: Collection[RunKey]) -> list[Checked]:
        """Reads the current state of runs."""
        return await self._retry("run.revalidate", lambda _: self._stores.runs.revalidate(keys))

    async def settle(self, settled: Sequence[Settled]) -> Settlement:
        """Writes outcomes."""
        parts = await self._in_parts(
            "run.settle", settled, lambda _, part: self._stores.runs.settle(part)
        )
        stale, refused = set(parts.values), {one.key for one in parts.refused}
        ended = {one.key for one in settled if one.ending.state in FINAL_STATES}
        self._ownership.past.ended(ended - stale - refused)
        return Settlement(stale, refused)

    async def list_unfinished(
        self,
        partitions: Collection[int],
        limit: int,
        after: Mapping[int, RunKey],
        *,
        is_first: bool,
    ) -> list[RunKey]:
        """Reads a page of unfinished runs. Raises `StoreTimeout` if the page is too large."""
        runs = self._stores.runs
        return await self._retry(
            "run.sweep",
            lambda lease: runs.list_unfinished(lease, partitions, limit, after, is_first=is_first),
            unless=StoreTimeout,
        )

    async def advance(self, marks: Mapping[int, Mark]) -> None:
        """Writes marks once, and only under trust: the next round repeats it.

        A mark says that everything before it has ended. After an outage the database may have
        forgotten some of those ends, and the mark would hide their runs from every sweep.
        """
        if not self._ownership.is_trusted:
            return
        try:
            await self._stores.timers.advance(self._ownership.lease, marks)
        except LeaseLost:
            self._ownership.lose()
            raise
        except StoreError as error:
            self._count("partition.mark", error)
            log.warning("partition.mark_failed", error=str(error))

    async def finish(self, job_ids: Collection[UUID]) -> None:
        timers = self._stores.timers
        await self._retry("job.finish", lambda lease: timers.finish(lease, job_ids))

    async def pause_gone(self, versions: Mapping[UUID, int]) -> None:
        timers = self._stores.timers
        await self._retry("job.pause", lambda lease: timers.pause_gone(lease, versions))

    async def release(self, partitions: Collection[int], *, is_leaving: bool) -> None:
        """Releases partitions, and continues with the new fence of the lease."""
        leases = self._stores.leases
        self._ownership.lease = await self._retry(
            "partition.release",
            lambda lease: leases.release(lease, partitions, is_leaving=is_leaving),
        )

    async def list_unplanned(self, partitions: Collection[int], limit: int) -> list[Unplanned]:
        plans = self._stores.plans
        return await self._retry("job.list", lambda _: plans.list_unplanned(partitions, limit))

    async def clear_drafts(self, numbers: Collection[int]) -> None:
        await self._retry("job.clear", lambda lease: self._stores.plans.clear(lease, numbers))

    async def plan(self, plans: Sequence[Plan]) -> Parts[Planned, Plan]:
        """Writes the plans of drafts."""

        async def write(lease: Lease, part: Sequence[Plan]) -> list[Planned]:
            return [await self._stores.plans.plan(lease, part)]

        return await self._in_parts("job.plan", plans, write)

    async def pause(self, most_ns: int | None = None) -> None:
        """Sleeps for a random time, so that shards do not retry in step."""
        most_ns = most_ns or self._config.first_pause_ns
        await self._clock.sleep(self._random.randint(most_ns // 2, most_ns))

    async def _retry(
        self,
        what: str,
        ask: Callable[[Lease], Awaitable[Value]],
        *,
        unless: type[StoreError] | None = None,
        errors: list[StoreError] | None = None,
    ) -> Value:
        """Calls `ask` until it succeeds.

        An error of the type `unless` is raised: another attempt would not help.
        """
        pause_ns = self._config.first_pause_ns
        while True:
            lease = self._ownership.lease
            try:
                return await ask(lease)
            except LeaseLost:
                self._ownership.lose()
                raise
            except FenceRaised:
                log.info("fence.raised", what=what)
                if self._ownership.lease != lease:
                    continue  # the hand-over that raised the fence has set the new lease
            except StoreError as error:
                self._count(what, error)
                if errors is not None:
                    errors.append(error)
                if unless is not None and isinstance(error, unless):
                    raise
                log.warning("store.retried", what=what, error=str(error))
            await self.pause(pause_ns)
            pause_ns = min(2 * pause_ns, self._config.longest_pause_ns)

    async def _in_parts(
        self, what: str, items: Sequence[Item], ask: Ask[Item, Value]
    ) -> Parts[Value, Item]:
        """Calls `ask` for all items, in parts, except for those that the store rejects.

        A batch that is rejected is halved until the item at fault is alone.
        """
        parts: Parts[Value, Item] = Parts()
        batches = [items]
        while batches:
            batch = batches.pop()
            errors: list[StoreError] = []
            try:
                parts.values += await self._retry(
                    what,
                    lambda lease, batch=batch: ask(lease, batch),  # type: ignore[misc]
                    unless=StoreFault,
                    errors=errors,
                )
            except StoreFault:
                log.exception("store.refused", what=what, items=len(batch))
                if len(batch) == 1:
                    parts.refused.append(batch[0])
                else:
                    half = len(batch) // 2
                    batches += [batch[half:], batch[:half]]
            parts.is_ambiguous |= bool(errors)
        return parts

    async def _won_before(
        self, lost: Collection[RunKey], tokens: Mapping[RunKey, int]
    ) -> list[Run]:
        """The runs in `lost` that an earlier attempt of the same claim has won."""
        if not lost:
            return []
        return [
            check.run
            for check in await self.revalidate(lost)
            if check.run.token == tokens.get(check.run.key) and check.run.state in _CLAIMED_STATES
        ]

    def _count_repeated(self, won: Collection[RunKey]) -> None:
        """Counts runs that had ended before, and whose end the database has forgotten."""
        repeated = self._ownership.past.count_repeated(won)
        if repeated:
            self._vitals.runs.repeated += repeated
            log.warning("runs.repeated", count=repeated)

    def _count(self, what: str, error: StoreError) -> None:
        store = self._vitals.store
        store.count_error(error)
        batches = {"horizon.load": store.loads, "run.arm": store.arms, "run.settle": store.settles}
        if what in batches:
            batches[what].errors += 1
