"""A shard from start to stop: one lease after the other, with a pipeline for each.

Invariant: a shard that has lost its lease starts again with a new id and no state. A shard that is
asked to stop hands over its partitions first.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.clock import DatabaseClock
from wheelsched.config import ShardConfig
from wheelsched.core.lease import LeaseTerms
from wheelsched.errors import DatabaseWentBack, LeaseLost, StoreError
from wheelsched.ports import Clock, Dispatcher, ShardLink, Stores, ValidateDraft
from wheelsched.shard.context import Context
from wheelsched.shard.loading.hint_freshness import Changes, Doubts, HintFreshness
from wheelsched.shard.loading.listener import Listen
from wheelsched.shard.ownership.ownership import ArmingLock, Ownership, Past
from wheelsched.shard.pipeline import Pipeline
from wheelsched.shard.retrying_store import RetryingStore
from wheelsched.shard.runs.registry import RunRegistry
from wheelsched.vitals import Vitals

log = structlog.get_logger("wheelsched.shard")

REJOIN_NS: Final = 1_000_000_000  # before a shard without a lease tries again to get one


class Environment(Struct, frozen=True, eq=False, kw_only=True):
    """The dependencies of a shard."""

    stores: Stores
    listen: Listen
    validate: ValidateDraft  # checks the drafts of applications
    dispatcher: Dispatcher
    machine: Clock  # measures trust in the lease
    clock: DatabaseClock  # decides when runs are due
    random: Random
    on_joining: Callable[[UUID], None] = lambda shard_id: None  # told before the lease exists
    link: ShardLink | None = None  # where processes with workers reach this one


class Shard:
    """One shard daemon."""

    def __init__(
        self, environment: Environment, config: ShardConfig, vitals: Vitals | None = None
    ) -> None:
        self._environment = environment
        self._config = config
        self.vitals = Vitals() if vitals is None else vitals
        self._stopping = asyncio.Event()
        self._past = Past()
        self._went_back_at_us: int | None = None

    @property
    def address(self) -> str | None:
        """The address of its health and metrics endpoints."""
        return self._config.address

    def stop(self) -> None:
        """Asks the shard to hand over and stop."""
        self._stopping.set()

    async def run(self) -> None:
        """Runs until it is stopped."""
        self.vitals.store.is_schema_current = True
        while not self._stopping.is_set():
            try:
                context = await self._join()
            except StoreError as error:
                self.vitals.store.count_error(error)
                log.warning("lease.unavailable", error=str(error))
                await self._wait_or_stop(REJOIN_NS)
                continue
            try:
                await self._serve(context)
            except* DatabaseWentBack as errors:
                self._note_going_back(_first_message(errors))
                await self._leave(context)  # its row may have come back from the past
            except* LeaseLost:
                log.warning("shard.restarted", lost=str(context.ownership.shard_id))
                await self._leave(context)  # the shard may have given the lease up by itself
                await self._compare_epochs()

    async def _join(self) -> Context:
        """Acquires a lease, and builds the context that lasts as long as the lease."""
        environment = self._environment
        leases = environment.stores.leases
        terms = LeaseTerms(ttl_us=self._config.lease_ttl_us, margin_us=self._config.lease_margin_us)
        sent_us = environment.machine.now_ns() // 1_000
        shard_id = UUID(int=environment.random.getrandbits(128), version=4)
        environment.on_joining(shard_id)
        lease = await leases.join(
            shard_id,
            terms.ttl_us,
            self._config.address,
            self._went_back_at_us,
            environment.link,
        )
        ownership = Ownership(lease, terms, environment.machine, leases.is_connected, self._past)
        ownership.renewed(sent_us, lease, await leases.renew(lease, terms.ttl_us))
        log.info("shard.joined", shard=str(shard_id))
        changes = Changes()
        return Context(
            machine=environment.machine,
            clock=environment.clock,
            stores=environment.stores,
            store=RetryingStore(
                environment.stores, ownership, environment.machine, self.vitals, environment.random
            ),
            ownership=ownership,
            arming_lock=ArmingLock(),
            registry=RunRegistry(self._config.max_armed),
            hint_freshness=HintFreshness(),
            changes=changes,
            doubts=Doubts(changes),
            vitals=self.vitals,
            config=self._config,
        )

    async def _serve(self, context: Context) -> None:
        """Runs the pipeline until the shard is asked to stop, then drains it."""
        environment = self._environment
        pipeline = Pipeline(
            context,
            environment.dispatcher,
            environment.listen,
            environment.validate,
            environment.random,
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(pipeline.run())
            await self._stopping.wait()
            log.info("shard.draining", live=context.registry.live_count)
            await self._drain_within(self._config.drain_us * 1_000, pipeline)
            running.cancel()
        await self._leave(context)
        log.info("shard.left", shard=str(context.ownership.shard_id))

    async def _compare_epochs(self) -> None:
        """Notes that the database went back if it has forgotten epochs of this process.

        A lease that was forgotten looks like one that was taken over.
        """
        try:
            survey = await self._environment.stores.leases.survey()
        except StoreError as error:
            self.vitals.store.count_error(error)
            return
        for each in survey.partitions:
            known = self._past.epochs.get(each.partition, 0)
            if each.epoch < known:
                reason = f"partition {each.partition} has epoch {each.epoch}, known {known}"
                self._note_going_back(reason)
                return

    async def _leave(self, context: Context) -> None:
        """Deletes the lease."""
        try:
            await self._environment.stores.leases.leave(context.ownership.lease)
        except StoreError as error:  # the other shards will see the lease expire
            log.warning("lease.release_failed", error=str(error))

    def _note_going_back(self, reason: str) -> None:
        self.vitals.ownership.went_back += 1
        self._past.doubt()
        self._went_back_at_us = self._environment.clock.now_us()
        log.error("database.went_back", reason=reason)

    async def _drain_within(self, delay_ns: int, pipeline: Pipeline) -> None:
        """Drains the pipeline, for at most this long."""
        async with asyncio.TaskGroup() as tasks:
            draining = tasks.create_task(pipeline.drain())
            deadline = tasks.create_task(self._environment.machine.sleep(delay_ns))
            await asyncio.wait({draining, deadline}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            deadline.cancel()

    async def _wait_or_stop(self, delay_ns: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(self._stopping.wait())
            pause = tasks.create_task(self._environment.machine.sleep(delay_ns))
            await asyncio.wait({stopping, pause}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            pause.cancel()


def _first_message(errors: BaseExceptionGroup[BaseException]) -> str:
    """The message of the first error in nested groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)
