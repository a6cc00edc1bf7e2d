"""Mutants of how a death is known, and of a database that goes back in time.

What the product notices in several ways, a mutant notices in none of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from msgspec.structs import replace
from tests.sim.mutants import mutant
from tests.sim.simulation import Simulation

from wheelsched.core import lease
from wheelsched.core.lease import BackendWatch
from wheelsched.ports import BackendView, Lease, Renewal
from wheelsched.shard.ownership import ownership
from wheelsched.shard.ownership.ownership import Ownership
from wheelsched.shard.ownership.takeover import Observer
from wheelsched.testing import leases
from wheelsched.testing.leases import MemoryLeases

CAUGHT_BACK = ("sent_from_memory", "sent_after_takeover", "token_order", "token_reused")


@mutant("sent_after_takeover", faults=("end_frozen",) * 4)
def trust_kept_after_a_lost_connection(_: Simulation) -> Iterator[None]:
    """Who wakes goes by the time that its lease has left."""
    with patch.object(Ownership, "_look_at_connection", lambda *_: True):
        yield


@mutant("robbed", faults=("cut_lease",) * 6)
def gone_at_the_first_look(_: Simulation) -> Iterator[None]:
    def left_us(watch: BackendWatch) -> int | None:
        return 0 if watch.was_alive and not watch.latest.is_alive else None

    with patch.object(BackendWatch, "gone_left_us", left_us):
        yield


@mutant("robbed", faults=("crash_backends",) * 4)
def gone_without_having_been_seen(_: Simulation) -> Iterator[None]:
    """A backend counts as gone for who comes back first, and has not seen it alive since."""
    begin = BackendWatch.begin

    def begin_believing(look: lease.BackendLook) -> BackendWatch:
        return replace(begin(look), was_alive=True)

    with patch.object(BackendWatch, "begin", staticmethod(begin_believing)):
        yield


@mutant("robbed", faults=("restart_server",) * 4)
def lifetime_of_the_server_ignored(_: Simulation) -> Iterator[None]:
    """What was seen alive before a restart is gone after it."""
    look, take_over_gone = Observer.look, MemoryLeases.take_over_gone

    def look_on(
        self: Observer, views: Sequence[BackendView], sent_us: int, received_us: int
    ) -> None:
        self._own = next((one.backend for one in views if one.shard_id == self._own_id), None)
        look(self, views, sent_us, received_us)

    async def take_over_any(self: MemoryLeases, own: Lease, gone: BackendView) -> bool:
        started_us = self._server.started_us
        try:
            self._server.started_us = gone.backend.server_started_us
            return await take_over_gone(self, own, gone)
        finally:
            self._server.started_us = started_us

    with (
        patch.object(Observer, "look", look_on),
        patch.object(Observer, "forget", lambda _: None),
        patch.object(MemoryLeases, "take_over_gone", take_over_any),
    ):
        yield


@mutant("two_owners", "epoch_order", "token_reused", faults=("go_back", "join", "go_back"))
def epoch_from_the_table_alone(_: Simulation) -> Iterator[None]:
    with patch.object(leases, "next_epoch", lambda last, *_: last + 1):
        yield


@contextmanager
def _no_check_of_renewals() -> Iterator[None]:
    """Neither the number of renewals, nor the fence, nor the server that has confirmed it."""
    renew = MemoryLeases.renew

    async def renew_anyhow(
        self: MemoryLeases, own: Lease, ttl_us: int, known_renewals: int = 0
    ) -> Renewal:
        renewal = await renew(self, own, ttl_us)
        return Renewal(renewal.renewals, renewal.fence)

    with (
        patch.object(MemoryLeases, "renew", renew_anyhow),
        patch.object(ownership, "is_from_the_past", lambda *_: False),
    ):
        yield


@mutant(*CAUGHT_BACK, "lost", "unrecorded", faults=("go_back_over_a_takeover",) * 2)
def no_check_of_renewals(_: Simulation) -> Iterator[None]:
    with _no_check_of_renewals():
        yield


@mutant(*CAUGHT_BACK, faults=("go_back_over_a_takeover",) * 2)
def partitions_that_are_not_ours_are_kept(_: Simulation) -> Iterator[None]:
    with _no_check_of_renewals(), patch.object(Ownership, "check_survey", lambda *_: None):
        yield
