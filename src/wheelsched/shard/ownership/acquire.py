"""Stage *acquire*: keeps the shard's lease, and its fair share of the partitions.

Invariant: the shard takes a partition only if no shard owns it. It releases one only if another
live shard should have it, or if this shard cannot read its runs. It keeps no partition that the
database gives to another shard. `takeover.py` decides which shards are dead.
"""

import asyncio

import structlog

from wheelsched.core.offset import ClockSample
from wheelsched.core.partition import partition_of, share_of
from wheelsched.core.targets.egress import OwnListener, read_listener
from wheelsched.errors import LeaseLost, StoreError
from wheelsched.ports import Dispatcher, Survey
from wheelsched.shard.context import Context
from wheelsched.shard.ownership.handover import HandOver
from wheelsched.shard.ownership.relinquished import Relinquished
from wheelsched.shard.ownership.renew import RENEWALS_PER_TTL, Renew
from wheelsched.shard.ownership.takeover import Takeover
from wheelsched.shard.queues import Queues

log = structlog.get_logger("wheelsched.shard")

READINGS = 4  # clock samples after each renewal
READING_NS = 40_000_000  # time limit for all of them


class Acquire:
    """Keeps the lease and the fair share of partitions."""

    def __init__(
        self, context: Context, queues: Queues, hand_over: HandOver, dispatcher: Dispatcher
    ) -> None:
        self._context = context
        self._queues = queues
        self._hand_over = hand_over
        self._dispatcher = dispatcher
        self._other_server = asyncio.Event()
        self._renew = Renew(context, self._other_server)
        self._takeover = Takeover(context, queues.free_partitions)
        self._alarm = context.machine.alarm(queues.free_partitions.set)
        self._is_leaving = False
        self._relinquished = Relinquished()
        self._interval_ns = context.ownership.terms.ttl_us * 1_000 // RENEWALS_PER_TTL

    def leave(self) -> None:
        """Stops taking partitions."""
        self._is_leaving = True

    async def run(self) -> None:
        """Renews, watches and balances until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew.run())
            tasks.create_task(self._takeover.run())
            tasks.create_task(self._keep_sampling())
            tasks.create_task(self._keep_balancing())
            tasks.create_task(self._keep_starting_over())

    async def _keep_starting_over(self) -> None:
        """Rebuilds the memory of the shard for another server, or another lifetime of the server.

        It may have forgotten claims and outcomes, or a takeover of this shard. So everything unsent
        is forgotten, and the partitions are taken again, with new epochs: what was in memory is
        read from the database.
        """
        while True:
            await self._other_server.wait()
            self._other_server.clear()
            await self._hand_over.start_over()
            self._queues.free_partitions.set()

    async def _keep_sampling(self) -> None:
        while True:
            await self._sample_clock()
            await self._context.clock.sleep(self._interval_ns)

    async def _sample_clock(self) -> None:
        """Samples the database's clock a few times, since a busy loop delays most samples.

        Stops early if the samples take too long: surveys need the connection too.
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
            self._anchor()

    def _anchor(self) -> None:
        """Restarts the wheels after the clock was stepped: a wheel never goes back.

        Runs that are due already and wait for something else are not touched: *fire* checks the
        time of each run before it sends it.
        """
        context, queues = self._context, self._queues
        now_us = context.clock.now_us()
        context.hint_freshness.lost()
        queues.upcoming.anchor(now_us)
        queues.timetable.anchor()
        queues.reloads.put_everything()

    async def _keep_balancing(self) -> None:
        try:
            while True:
                self._queues.free_partitions.clear()
                try:
                    await self._survey()
                except LeaseLost:
                    raise
                except StoreError as error:
                    self._context.vitals.store.count_error(error)
                    log.warning("survey.failed", error=str(error))
                self._alarm.set(self._context.machine.now_ns() + self._interval_ns)
                await self._queues.free_partitions.wait()
        finally:
            self._alarm.close()

    async def _survey(self) -> None:
        """Surveys all shards and partitions, takes over dead shards, and balances."""
        sent_us, held = self._context.ownership.now_us(), self._context.ownership.epochs()
        survey = await self._context.stores.leases.survey()
        received_us = self._context.ownership.now_us()
        self._context.ownership.check_survey(held, survey)
        self._context.ownership.live_shards = frozenset(shard.shard_id for shard in survey.shards)
        self._dispatcher.avoid(_listeners(survey))
        await self._takeover.take_over_expired(survey, sent_us, received_us)
        await self._balance(survey)

    async def _balance(self, survey: Survey) -> None:
        """Takes the free partitions of our share, and hands over those of other shards."""
        ownership = self._context.ownership
        if self._is_leaving or not ownership.is_trusted:
            return
        own_id = ownership.shard_id
        staying = [shard.shard_id for shard in survey.shards if not shard.is_leaving]
        share = share_of(own_id, staying)
        free = {each.partition for each in survey.partitions if each.owner is None}
        ours = {each.partition for each in survey.partitions if each.owner == own_id}
        unclaimed = self._relinquished.among(free, ownership.now_us())
        unheld = ours - ownership.partitions
        ownership.note_unheld(each for each in survey.partitions if each.partition in unheld)
        wanted = self._relinquished.allowed(share & free) | unclaimed | unheld
        if wanted:
            known_epochs = dict(ownership.past.epochs)  # of now: the statement may be delayed
            owned = await self._context.stores.leases.acquire(ownership.lease, wanted, known_epochs)
            gained = ownership.gain(owned)
            log.info("partitions.gained", count=len(gained))
            self._relinquished.taken(unclaimed & set(gained), ownership.now_us())
            self._queues.gained.put(*gained)
            self._queues.drafts.set()
        await self._release_unready()
        awake = {shard.shard_id for shard in survey.shards if not shard.is_expired}
        kept = self._relinquished.kept(ownership.now_us()) | ownership.unrecovered(self._orphaned)
        surplus = (ownership.partitions & ours) - share - kept
        given = frozenset().union(*(share_of(other, staying) for other in awake - {own_id}))
        if surplus & given:
            await self._hand_over(surplus & given)

    def _orphaned(self) -> set[int]:
        """The partitions with runs that are not adopted yet."""
        return {partition_of(key.job_id) for key in self._context.registry.orphans}

    async def _release_unready(self) -> None:
        """Releases partitions whose unfinished runs this shard cannot read."""
        ownership = self._context.ownership
        most_us = self._context.config.give_up_us
        stuck = {p for p, unready_us in ownership.unready_us().items() if unready_us > most_us}
        if stuck:
            log.error("partitions.relinquished", count=len(stuck))
            self._relinquished.add(stuck, ownership.now_us())
            await self._hand_over(stuck)


def _listeners(survey: Survey) -> list[OwnListener]:
    """The listeners of all shards: no callback may reach them."""
    probes = [shard.address for shard in survey.shards if shard.address]
    links = [f"tcp://{shard.link_address}" for shard in survey.shards if shard.link_address]
    return [listener for listener in map(read_listener, (*probes, *links)) if listener is not None]
