"""A shard from its start to its stop: one lease after the other, a pipeline for each.

Invariant: a shard that lost its lease begins again as another, with a fresh id and nothing in its
memory. One that is asked to stop hands everything over before it goes.
"""

import asyncio
from random import Random
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.clock import DatabaseClock
from wheelsched.config import ShardConfig
from wheelsched.core.lease import LeaseTerms
from wheelsched.errors import LeaseLost, StoreError
from wheelsched.ports import Clock, Dispatcher, Judge, Stores
from wheelsched.shard.context import Context
from wheelsched.shard.freshness import Changes, Doubts
from wheelsched.shard.gate import Gate
from wheelsched.shard.listener import Listen
from wheelsched.shard.patience import LONGEST_PAUSE_NS, Patience
from wheelsched.shard.pipeline import Pipeline
from wheelsched.shard.tenure import Tenure
from wheelsched.shard.unfinished import Unfinished
from wheelsched.vitals import Vitals

log = structlog.get_logger("wheelsched.shard")


class Surroundings(Struct, frozen=True, eq=False, kw_only=True):
    """What a shard stands on."""

    stores: Stores
    listen: Listen
    judge: Judge  # of what applications have written
    dispatcher: Dispatcher
    machine: Clock  # by which trust in the lease is measured
    clock: DatabaseClock  # by which runs are due
    random: Random


class Shard:
    """One shard daemon."""

    def __init__(
        self, surroundings: Surroundings, config: ShardConfig, vitals: Vitals | None = None
    ) -> None:
        self._surroundings = surroundings
        self._config = config
        self.vitals = Vitals() if vitals is None else vitals
        self._stopping = asyncio.Event()

    @property
    def address(self) -> str | None:
        """Where it shows how it is doing."""
        return self._config.address

    def stop(self) -> None:
        """Hands over and ends, soon."""
        self._stopping.set()

    async def run(self) -> None:
        """Works until it is stopped."""
        self.vitals.store.is_schema_current = True
        while not self._stopping.is_set():
            try:
                context = await self._join()
            except StoreError as error:
                self.vitals.store.count_error(error)
                log.warning("lease.unavailable", error=str(error))
                await self._wait_or_stop(LONGEST_PAUSE_NS)
                continue
            try:
                await self._serve(context)
            except* LeaseLost:
                log.warning("shard.reborn", lost=str(context.tenure.shard_id))

    async def _join(self) -> Context:
        """Begins a lease, and everything that lasts as long as it."""
        around = self._surroundings
        leases = around.stores.leases
        terms = LeaseTerms(ttl_us=self._config.lease_ttl_us, margin_us=self._config.lease_margin_us)
        sent_us = around.machine.now_ns() // 1_000
        shard_id = UUID(int=around.random.getrandbits(128), version=4)
        lease = await leases.join(shard_id, terms.ttl_us, self._config.address)
        tenure = Tenure(lease, terms, around.machine)
        tenure.renewed(sent_us)
        log.info("shard.joined", shard=str(shard_id))
        return Context(
            machine=around.machine,
            clock=around.clock,
            stores=around.stores,
            tenure=tenure,
            unfinished=Unfinished(),
            vitals=self.vitals,
            patience=Patience(around.machine, tenure, self.vitals, around.random),
            config=self._config,
            arming=Gate(),
            changes=Changes(),
            doubts=Doubts(),
        )

    async def _serve(self, context: Context) -> None:
        """Runs the pipeline until it is to stop, and then lets it drain."""
        around = self._surroundings
        pipeline = Pipeline(context, around.dispatcher, around.listen, around.judge, around.random)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(pipeline.run())
            await self._stopping.wait()
            log.info("shard.draining", live=context.unfinished.live_count)
            await self._before(self._config.drain_us * 1_000, pipeline)
            running.cancel()
        try:
            await around.stores.leases.leave(context.tenure.lease)
        except StoreError as error:  # then the others find out by themselves
            log.warning("lease.left_behind", error=str(error))
        log.info("shard.left", shard=str(context.tenure.shard_id))

    async def _before(self, delay_ns: int, pipeline: Pipeline) -> None:
        """Drains the pipeline, for as long as it may take."""
        async with asyncio.TaskGroup() as tasks:
            draining = tasks.create_task(pipeline.drain())
            deadline = tasks.create_task(self._surroundings.machine.sleep(delay_ns))
            await asyncio.wait({draining, deadline}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            deadline.cancel()

    async def _wait_or_stop(self, delay_ns: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(self._stopping.wait())
            pause = tasks.create_task(self._surroundings.machine.sleep(delay_ns))
            await asyncio.wait({stopping, pause}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            pause.cancel()
