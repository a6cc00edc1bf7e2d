"""Stage *acquire*: keeps the shard's lease, and its fair share of the partitions.

Invariant: the lease is renewed whatever else happens, and trusted only as far as a renewal that
the database confirmed reaches. A partition is taken only when nobody owns it, and given up only
when its share belongs to a shard that lives, or its runs cannot be read here. A shard is declared
dead only when its lease has expired and stood still for a whole TTL of our own clock.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.core.egress import OwnListener, read_listener
from wheelsched.core.lease import Look, Watch
from wheelsched.core.offset import ClockSample
from wheelsched.core.partition import share_of
from wheelsched.errors import LeaseLost, StoreError
from wheelsched.ports import ShardView, Survey
from wheelsched.shard.context import Context
from wheelsched.shard.orphans import Orphans

log = structlog.get_logger("wheelsched.shard")

RENEWALS_PER_TTL = 5
READINGS = 4  # of the clock, after each renewal
READING_NS = 40_000_000  # for all of them


class Outlets(Struct, frozen=True):
    """Whom to tell."""

    gained: Callable[[Collection[int]], None]
    hand_over: Callable[[Collection[int]], Awaitable[None]]
    renewed: Callable[[], None]
    stepped: Callable[[], None]  # the clock was set to another time
    seen: Callable[[Collection[OwnListener]], None]  # where shards show how they are doing


class Acquire:
    """Keeps the lease, and the share."""

    def __init__(self, context: Context, outlets: Outlets) -> None:
        self._context = context
        self._outlets = outlets
        self._watches: dict[UUID, Watch] = {}
        self._woken = asyncio.Event()
        self._alarm = context.machine.alarm(self._woken.set)
        self._is_leaving = False
        self._orphans = Orphans()
        self._interval_ns = context.tenure.terms.ttl_us * 1_000 // RENEWALS_PER_TTL

    def look_soon(self) -> None:
        """A partition became free."""
        self._woken.set()

    def leave(self) -> None:
        """Takes nothing any more."""
        self._is_leaving = True

    async def run(self) -> None:
        """Renews and looks around until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_renewing())
            tasks.create_task(self._keep_looking())

    async def _keep_renewing(self) -> None:
        while True:
            await self._renew()
            await self._sample_clock()
            await self._context.clock.sleep(self._interval_ns)

    async def _renew(self) -> None:
        tenure = self._context.tenure
        sent_us = tenure.now_us()
        try:
            await self._context.stores.leases.renew(tenure.lease, tenure.terms.ttl_us)
        except LeaseLost:
            tenure.lose()
            log.warning("lease.lost", shard=str(tenure.shard_id))
            raise
        except StoreError as error:
            self._context.vitals.store.count_error(error)
            log.warning("lease.unrenewed", error=str(error), left_us=tenure.trust_left_us)
        else:
            tenure.renewed(sent_us)
            self._outlets.renewed()

    async def _sample_clock(self) -> None:
        """Reads the database's clock a few times: on a busy loop most readings are held up.

        When they take longer than that, one is enough: the next renewal is not to wait for them.
        """
        leases, machine = self._context.stores.leases, self._context.machine
        until_ns = machine.now_ns() + READING_NS
        for _ in range(READINGS):
            try:
                sample = await leases.read_clock(machine.now_ns)
            except StoreError as error:
                self._context.vitals.store.count_error(error)
                return
            self._add_sample(sample)
            if machine.now_ns() > until_ns:
                return

    def _add_sample(self, sample: ClockSample) -> None:
        if self._context.clock.add_sample(sample):
            self._context.vitals.clock.steps += 1
            log.warning("clock.stepped", offset_us=self._context.clock.offset_us)
            self._outlets.stepped()

    async def _keep_looking(self) -> None:
        try:
            while True:
                self._woken.clear()
                try:
                    await self._look()
                except LeaseLost:
                    raise
                except StoreError as error:
                    self._context.vitals.store.count_error(error)
                    log.warning("survey.failed", error=str(error))
                self._alarm.set(self._context.machine.now_ns() + self._interval_ns)
                await self._woken.wait()
        finally:
            self._alarm.close()

    async def _look(self) -> None:
        """One look at everybody, and what follows from it."""
        sent_us = self._context.tenure.now_us()
        survey = await self._context.stores.leases.survey()
        received_us = self._context.tenure.now_us()
        self._context.tenure.seen = frozenset(shard.shard_id for shard in survey.shards)
        addresses = [shard.address for shard in survey.shards if shard.address]
        self._outlets.seen([each for each in map(read_listener, addresses) if each])
        for shard in survey.shards:
            look = Look(
                renewals=shard.renewals,
                is_expired=shard.is_expired,
                sent_us=sent_us,
                received_us=received_us,
            )
            await self._watch(shard, look)
        self._watches = {
            shard_id: watch
            for shard_id, watch in self._watches.items()
            if shard_id in self._context.tenure.seen
        }
        await self._balance(survey)

    async def _watch(self, shard: ShardView, look: Look) -> None:
        """Takes over a shard that is dead."""
        tenure = self._context.tenure
        if shard.shard_id == tenure.shard_id:
            return
        known = self._watches.get(shard.shard_id)
        watch = Watch.begin(look) if known is None else known.after(look, tenure.terms)
        self._watches[shard.shard_id] = watch
        if not watch.may_take_over(tenure.terms) or not tenure.is_trusted:
            return
        leases = self._context.stores.leases
        if await leases.take_over(tenure.lease, shard.shard_id, shard.renewals):
            self._context.vitals.tenure.takeovers += 1
            log.warning("shard.taken_over", dead=str(shard.shard_id))
            self._woken.set()

    async def _balance(self, survey: Survey) -> None:
        """Takes what is free of our share, and gives up what belongs to another."""
        tenure = self._context.tenure
        if self._is_leaving or not tenure.is_trusted:
            return
        own_id = tenure.shard_id
        staying = [shard.shard_id for shard in survey.shards if not shard.is_leaving]
        share = share_of(own_id, staying)
        free = {each.partition for each in survey.partitions if each.owner is None}
        ours = {each.partition for each in survey.partitions if each.owner == own_id}
        orphans = self._orphans.among(free, tenure.now_us())
        wanted = self._orphans.without_given_up(share & free) | orphans | (ours - tenure.partitions)
        if wanted:
            owned = await self._context.stores.leases.acquire(tenure.lease, wanted)
            gained = tenure.gain(owned)
            log.info("partitions.gained", count=len(gained))
            self._orphans.taken(orphans & set(gained), tenure.now_us())
            self._outlets.gained(gained)
        await self._give_up_unready()
        awake = {shard.shard_id for shard in survey.shards if not shard.is_expired}
        surplus = (tenure.partitions & ours) - share - self._orphans.kept(tenure.now_us())
        given = frozenset().union(*(share_of(other, staying) for other in awake - {own_id}))
        if surplus & given:
            await self._outlets.hand_over(surplus & given)

    async def _give_up_unready(self) -> None:
        """Lets others try partitions whose unfinished runs this shard cannot read."""
        tenure = self._context.tenure
        most_us = self._context.config.give_up_us
        stuck = {p for p, unready_us in tenure.unready_us().items() if unready_us > most_us}
        if stuck:
            log.error("partitions.given_up", count=len(stuck))
            self._orphans.given_up(stuck, tenure.now_us())
            await self._outlets.hand_over(stuck)
