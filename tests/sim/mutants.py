"""Mutants: the product, broken on purpose. The checker that lets one pass is not worth its name.

Each is a way to break one simulation, which it gets before anything has started in it. `caught_as`
are the findings that give it away, and `faults` what makes it show: bad luck of other kinds would
only take longer.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from tests.sim import simulation
from tests.sim.simulation import MS, Simulation

from wheelsched.clock import DatabaseClock
from wheelsched.core.lease import LeaseTerms, LeaseWatch
from wheelsched.core.model import Run, RunKey
from wheelsched.core.policies import misfire, overlap
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.ports import (
    NO_EPOCHS,
    Adoption,
    Caller,
    Claim,
    KeyedRequest,
    Lease,
    PartitionOwner,
    RequestedRun,
    Settled,
)
from wheelsched.shard.arming.request_builder import RequestBuilder
from wheelsched.shard.loading.hint_freshness import HintFreshness
from wheelsched.shard.ownership.ownership import Ownership
from wheelsched.shard.recovery.sweep import Sweep
from wheelsched.shard.runs.registry import RunRegistry
from wheelsched.testing import skips
from wheelsched.testing.history import MemoryHistory
from wheelsched.testing.idempotency import MemoryIdempotency
from wheelsched.testing.leases import MemoryLeases
from wheelsched.testing.runs import MemoryRuns
from wheelsched.testing.tables import MemoryTables
from wheelsched.testing.timers import MemoryTimers

Breaking = Callable[[Simulation], Iterator[None]]


class Mutant(Struct, frozen=True):
    name: str
    break_it: Callable[[Simulation], Any]
    caught_as: frozenset[str]
    faults: tuple[str, ...]
    requests: int = 6
    transactions: int = 0
    calls: int = 0
    queues: int = 0
    queue_faults: tuple[str, ...] = ()


MUTANTS: list[Mutant] = []


def mutant(*caught_as: str, faults: Sequence[str], **wanted: Any) -> Callable[[Breaking], Breaking]:
    """Adds a mutant. `wanted` is how many requests, transactions, calls and queues it takes."""

    def add(breaking: Breaking) -> Breaking:
        MUTANTS.append(
            Mutant(
                breaking.__name__,
                contextmanager(breaking),
                frozenset(caught_as),
                tuple(faults),
                **wanted,
            )
        )
        return breaking

    return add


@mutant("armed_after_release", faults=("crash",) * 2)
def no_fence(world: Simulation) -> Iterator[None]:
    """A claim that was on its way for long is written, whoever owns the partition by then."""
    with _slow_claims(world), _no_fence():
        yield


@mutant("armed_after_release", faults=("crash",) * 2)
def plain_exists_instead_of_a_lock(world: Simulation) -> Iterator[None]:
    """The lease is there when a claim begins, and gone when it commits."""
    with _slow_claims(world, looks_first=True):
        yield


@contextmanager
def _no_fence() -> Iterator[None]:
    """Neither the lease nor the owner of the partition is looked at."""
    with (
        patch.object(MemoryTables, "check_lease", lambda *_: None),
        patch.object(MemoryTables, "owns", lambda *_: True),
    ):
        yield


@contextmanager
def _slow_claims(world: Simulation, *, looks_first: bool = False) -> Iterator[None]:
    """Some claims take until just after their shard was taken over; most take no time."""
    arm, end_shard, random = MemoryTimers.arm, MemoryTables.end_shard, world.source("slow claims")
    ended: dict[UUID, asyncio.Event] = {}

    def end(self: MemoryTables, shard_id: UUID) -> None:
        end_shard(self, shard_id)
        ended.setdefault(shard_id, asyncio.Event()).set()

    async def commit(timers: MemoryTimers, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        if random.random() < 0.2:
            await ended.setdefault(lease.shard_id, asyncio.Event()).wait()
            await world.clock.sleep(MS)
        if looks_first:
            with _no_fence():
                return await arm(timers, lease, claims)
        return await arm(timers, lease, claims)

    async def arm_slowly(self: MemoryTimers, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        if looks_first:
            self._tables.check_lease(lease)
        # The statement goes on when the process that has sent it dies.
        return await asyncio.shield(
            asyncio.get_running_loop().create_task(commit(self, lease, claims))
        )

    with (
        patch.object(MemoryTimers, "arm", arm_slowly),
        patch.object(MemoryTables, "end_shard", end),
    ):
        yield


@mutant("lost", faults=("crash", "cut_everybody"))
def next_from_now(_: Simulation) -> Iterator[None]:
    decide = misfire.decide

    def decide_from_now(policy: Any, schedule: Any, due_us: int, now_us: int) -> misfire.Decision:
        decision = decide(policy, schedule, due_us, due_us)
        next_us = schedule.next_after(max(now_us, due_us))
        return replace(decision, next_due_us=next_us)

    with patch.object(misfire, "decide", decide_from_now):
        yield


@mutant("stale_write", faults=("crash",) * 3)
def no_token_on_settle(world: Simulation) -> Iterator[None]:
    """Some outcomes arrive long after their shard is gone, and count all the same."""
    settle, random = MemoryRuns.settle, world.source("slow outcomes")

    async def commit(runs: MemoryRuns, settled: Sequence[Settled]) -> set[RunKey]:
        if random.random() < 0.3:
            await world.clock.sleep(15_000 * MS)
        rows = runs._tables.runs
        return await settle(
            runs, [replace(one, token=rows[one.key].run.token or one.token) for one in settled]
        )

    async def settle_any(self: MemoryRuns, settled: Sequence[Settled]) -> set[RunKey]:
        # The statement goes on when the process that has sent it dies.
        return await asyncio.shield(asyncio.get_running_loop().create_task(commit(self, settled)))

    with patch.object(MemoryRuns, "settle", settle_any):
        yield


@mutant("sent_after_takeover", faults=("freeze_long",) * 3)
def trust_never_expires(_: Simulation) -> Iterator[None]:
    with patch.object(Ownership, "is_trusted", True):
        yield


@mutant("stuck", faults=("crash", "crash"))
def sweep_forgets(_: Simulation) -> Iterator[None]:
    async def nothing(*_: object, **__: object) -> list[RunKey]:
        return []

    with patch.object(Sweep, "_list_unfinished", nothing):
        yield


@mutant("lost", faults=("crash", "crash"))
def some_partitions_never_become_ready(_: Simulation) -> Iterator[None]:
    """Their new owner holds them, and arms nothing of theirs."""
    ready = Ownership.ready

    def ready_in_part(self: Ownership, partitions: Iterable[int]) -> None:
        ready(self, [partition for partition in partitions if partition % 4])

    with patch.object(Ownership, "ready", ready_in_part):
        yield


@mutant("fired_while_paused", "old_self", faults=("deafen",) * 5, requests=80)
def hints_without_freshness(_: Simulation) -> Iterator[None]:
    with patch.object(HintFreshness, "covers", lambda *_: True):
        yield


@mutant("lost", faults=("cut_everybody", "cut_everybody"))
def misfire_dropped_silently(_: Simulation) -> Iterator[None]:
    arm = MemoryTimers.arm

    async def arm_without(self: MemoryTimers, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        return await arm(self, lease, [replace(claim, skip=None) for claim in claims])

    with patch.object(MemoryTimers, "arm", arm_without):
        yield


@mutant("lost", faults=("cut_everybody",) * 4, requests=60)
def change_drops_what_is_late(_: Simulation) -> Iterator[None]:
    """A timer that is stopped takes the due times with it that had passed and were not armed."""
    with patch.object(skips, "unarmed_dues", lambda *_: None):
        yield


@mutant("overlapping", faults=("crash",))
def overlap_not_decided(_: Simulation) -> Iterator[None]:
    with patch.object(overlap, "decide", lambda *_, **__: overlap.Fire()):
        yield


@mutant("overlapping", faults=("crash",))
def queue_not_kept(_: Simulation) -> Iterator[None]:
    decide = overlap.decide

    def decide_unless_queued(policy: OverlapPolicy, **circumstances: Any) -> overlap.Decision:
        if policy.policy is OnOverlap.QUEUE:
            return overlap.Fire()
        return decide(policy, **circumstances)

    with patch.object(overlap, "decide", decide_unless_queued):
        yield


@mutant("groundless", faults=("slow_outcomes",) * 2)
def skipped_for_an_unwritten_outcome(_: Simulation) -> Iterator[None]:
    """A run whose outcome waits to be written counts like one that is still with its worker."""
    with patch.object(RunRegistry, "count_settling", lambda *_: 0):
        yield


@mutant("early", faults=("crash",))
def sent_too_early(_: Simulation) -> Iterator[None]:
    prepare = RequestBuilder._prepare

    def prepare_early(self: RequestBuilder, job: Any, run: Run, token: int, fire_at_us: int) -> Any:
        return prepare(self, job, run, token, fire_at_us - 100_000)

    with patch.object(RequestBuilder, "_prepare", prepare_early):
        yield


@mutant("two_owners", "epoch_order", faults=("crash", "join", "leave"))
def epoch_that_does_not_grow(_: Simulation) -> Iterator[None]:
    acquire = MemoryLeases.acquire

    async def acquire_again(
        self: MemoryLeases,
        lease: Lease,
        partitions: Collection[int],
        known_epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> list[PartitionOwner]:
        rows = self._tables.partitions
        before = {partition: rows[partition].epoch for partition in partitions}
        taken = await acquire(self, lease, partitions, known_epochs)
        for each in taken:
            rows[each.partition].epoch = before[each.partition] or each.epoch
        return [replace(each, epoch=rows[each.partition].epoch) for each in taken]

    with patch.object(MemoryLeases, "acquire", acquire_again):
        yield


@mutant("sent_after_takeover", "duplicated", faults=("step",) * 4)
def takeover_by_the_clock_alone(_: Simulation) -> Iterator[None]:
    with patch.object(LeaseWatch, "may_take_over", lambda self, _: self.latest.is_expired):
        yield


@mutant("stuck", "token_reused", "duplicated", faults=("crash", "crash"))
def adoption_without_a_new_token(_: Simulation) -> Iterator[None]:
    async def adopt(self: MemoryRuns, lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        return set()

    with patch.object(MemoryRuns, "adopt", adopt):
        yield


@mutant("cross_tenant", "old_self", faults=("crash",))
def payload_of_another_job(_: Simulation) -> Iterator[None]:
    prepare = RequestBuilder._prepare
    payloads: list[Any] = []

    def prepare_mixed(self: RequestBuilder, job: Any, run: Run, token: int, fire_at_us: int) -> Any:
        payloads.append(job.payload)
        mixed = replace(job, payload=payloads[max(len(payloads) - 4, 0)])
        return prepare(self, mixed, run, token, fire_at_us)

    with patch.object(RequestBuilder, "_prepare", prepare_mixed):
        yield


@mutant("requested_twice", faults=("storm",) * 4, requests=60)
def key_of_a_request_forgotten(_: Simulation) -> Iterator[None]:
    """A request that is sent again is done again."""
    begin = MemoryIdempotency.begin

    async def begin_anew(
        self: MemoryIdempotency, caller: Caller, key: str, digest: bytes, takeover_after_us: int
    ) -> KeyedRequest:
        self._tables.idempotency.pop((caller.tenant_id, key), None)
        return await begin(self, caller, key, digest, takeover_after_us)

    with (
        patch.object(MemoryIdempotency, "begin", begin_anew),
        patch.object(MemoryHistory, "_made_by", lambda *_: []),
    ):
        yield


@mutant("misfilled", "lost", faults=("crash",), requests=40)
def backfill_leaves_one_out(_: Simulation) -> Iterator[None]:
    request = MemoryHistory.request

    async def request_less(
        self: MemoryHistory, caller: Caller, runs: Sequence[RequestedRun], most: int
    ) -> list[RunKey]:
        return await request(self, caller, runs[:-1] if len(runs) > 1 else runs, most)

    with patch.object(MemoryHistory, "request", request_less):
        yield


@mutant("slow_takeover", faults=("crash",) * 2)
def takeover_takes_its_time(_: Simulation) -> Iterator[None]:
    may_take_over = LeaseWatch.may_take_over

    def may_take_over_later(self: LeaseWatch, terms: LeaseTerms) -> bool:
        return may_take_over(self, replace(terms, ttl_us=4 * terms.ttl_us))

    with patch.object(LeaseWatch, "may_take_over", may_take_over_later):
        yield


@mutant("early", faults=("join",) * 2)
def clock_read_once(_: Simulation) -> Iterator[None]:
    """Every machine's clock gains, and nobody looks at the database's again."""
    with (
        patch.object(simulation, "DRIFTS_PPM", (400,)),
        patch.object(DatabaseClock, "add_sample", lambda *_: False),
    ):
        yield


@mutant("late", faults=("join",))
def sent_late(_: Simulation) -> Iterator[None]:
    prepare = RequestBuilder._prepare

    def prepare_late(self: RequestBuilder, job: Any, run: Run, token: int, fire_at_us: int) -> Any:
        return prepare(self, job, run, token, fire_at_us + 5_000_000)

    with patch.object(RequestBuilder, "_prepare", prepare_late):
        yield


# No mutant: what shows that a fence is missing, with the fence in its place.
SLOW_CLAIMS = Mutant("slow claims", _slow_claims, frozenset(), ("crash",) * 2)
