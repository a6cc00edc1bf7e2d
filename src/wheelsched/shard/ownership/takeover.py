"""Takes over dead shards: deletes their leases.

Then their partitions are free: `acquire.py` takes them, and `shard/recovery` recovers their runs. A
shard is dead if its backend is gone, or if its lease has expired.

Invariant: a backend counts as gone only if this observer has seen it alive, while its own backend
stayed the same: whatever ends the observer's own connection may have ended the others' too. It must
be gone at each look for half a second. A lease counts as expired only if it was not renewed for a
whole TTL of our own clock either.
"""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import structlog

from wheelsched.core.lease import Backend, BackendLook, BackendWatch, LeaseWatch, Observation
from wheelsched.errors import LeaseLost, StoreError
from wheelsched.ports import BackendView, ShardView, Survey
from wheelsched.shard.context import Context

log = structlog.get_logger("wheelsched.shard")

LOOK_NS: Final = 100_000_000  # between two looks
LEAST_NS: Final = 5_000_000
IDLE_NS: Final = 1_000_000_000  # between two looks that show no other shard, or fail


class Observer:
    """What one shard has seen of the backends of the others."""

    def __init__(self, own_id: UUID) -> None:
        self._own_id = own_id
        self._own: Backend | None = None
        self._watches: dict[UUID, BackendWatch] = {}

    @property
    def sees_others(self) -> bool:
        """Whether it watches other shards."""
        return bool(self._watches)

    def forget(self) -> None:
        """Starts anew, after a look that failed."""
        self._own = None
        self._watches.clear()

    def look(self, views: Sequence[BackendView], sent_us: int, received_us: int) -> None:
        """Records one observation of all backends."""
        own = next((view for view in views if view.shard_id == self._own_id), None)
        if own is None or not own.is_alive or own.backend != self._own:
            self.forget()
        if own is None or not own.is_alive:
            return
        self._own = own.backend
        watches: dict[UUID, BackendWatch] = {}
        for view in views:
            if view is not own:
                look = BackendLook(
                    backend=view.backend,
                    renewals=view.renewals,
                    is_alive=view.is_alive,
                    sent_us=sent_us,
                    received_us=received_us,
                )
                known = self._watches.get(view.shard_id)
                watch = BackendWatch.begin(look) if known is None else known.after(look)
                watches[view.shard_id] = watch
        self._watches = watches

    def gone(self) -> list[BackendView]:
        """The shards that may be taken over."""
        return [
            BackendView(shard_id, watch.latest.renewals, watch.latest.backend, is_alive=False)
            for shard_id, watch in self._watches.items()
            if watch.gone_left_us() == 0
        ]

    def next_look_us(self) -> int | None:
        """How long until a backend that is gone has been gone for long enough."""
        left = [watch.gone_left_us() for watch in self._watches.values()]
        return min((left_us for left_us in left if left_us), default=None)


class Takeover:
    """Takes over shards whose backend is gone, and shards whose lease has expired."""

    def __init__(self, context: Context, free_partitions: asyncio.Event) -> None:
        self._context = context
        self._free_partitions = free_partitions
        self._observer = Observer(context.ownership.shard_id)
        self._leases: dict[UUID, LeaseWatch] = {}

    async def run(self) -> None:
        """Watches the backends of the others until it is cancelled."""
        while True:
            try:
                await self._take_over_gone()
            except LeaseLost:
                raise
            except StoreError as error:
                self._observer.forget()
                self._context.vitals.store.count_error(error)
            await self._context.clock.sleep(self._pause_ns())

    def _pause_ns(self) -> int:
        if not self._observer.sees_others:
            return IDLE_NS
        left_us = self._observer.next_look_us()
        return LOOK_NS if left_us is None else max(min(left_us * 1_000, LOOK_NS), LEAST_NS)

    async def _take_over_gone(self) -> None:
        ownership, leases = self._context.ownership, self._context.stores.leases
        sent_us = ownership.now_us()
        views = await leases.watch_backends()
        self._observer.look(views, sent_us, ownership.now_us())
        for gone in self._observer.gone():
            if ownership.is_trusted and await leases.take_over_gone(ownership.lease, gone):
                self._taken_over(gone.shard_id, "disconnected")

    async def take_over_expired(self, survey: Survey, sent_us: int, received_us: int) -> None:
        """Takes over the shards whose leases have expired, by this survey and those before it."""
        own_id = self._context.ownership.shard_id
        for shard in survey.shards:
            if shard.shard_id != own_id:
                look = Observation(
                    renewals=shard.renewals,
                    is_expired=shard.is_expired,
                    sent_us=sent_us,
                    received_us=received_us,
                )
                await self._take_over_if_expired(shard, look)
        listed = {shard.shard_id for shard in survey.shards}
        self._leases = {
            shard_id: watch for shard_id, watch in self._leases.items() if shard_id in listed
        }

    async def _take_over_if_expired(self, shard: ShardView, look: Observation) -> None:
        ownership, leases = self._context.ownership, self._context.stores.leases
        known = self._leases.get(shard.shard_id)
        watch = LeaseWatch.begin(look) if known is None else known.after(look, ownership.terms)
        self._leases[shard.shard_id] = watch
        if not watch.may_take_over(ownership.terms) or not ownership.is_trusted:
            return
        if await leases.take_over(ownership.lease, shard.shard_id, shard.renewals):
            self._taken_over(shard.shard_id, "expired")

    def _taken_over(self, dead: UUID, cause: str) -> None:
        self._context.vitals.ownership.takeovers += 1
        log.warning("shard.taken_over", dead=str(dead), cause=cause)
        self._free_partitions.set()
