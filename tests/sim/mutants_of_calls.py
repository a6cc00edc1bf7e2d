"""Mutants of what is asked of the API: of requests that are sent again, and of retries by hand."""

from collections.abc import Iterator, Sequence
from unittest.mock import patch
from uuid import UUID

from tests.sim import api
from tests.sim.mutants import mutant
from tests.sim.simulation import Simulation

from wheelsched.core.model import Run, RunKey
from wheelsched.ports import Caller, KeyedRequest, Registration
from wheelsched.testing.history import MemoryHistory
from wheelsched.testing.idempotency import MemoryIdempotency
from wheelsched.testing.jobs import MemoryJobs


@mutant("lost", faults=("join",), calls=60)
def retry_that_is_not_done(_: Simulation) -> Iterator[None]:
    async def do_nothing(*_: object, **__: object) -> set[RunKey]:
        return set()

    with patch.object(MemoryHistory, "retry", do_nothing):
        yield


@mutant("retried_unasked", faults=("join",), calls=60)
def retried_again_by_a_request_that_is_sent_again(_: Simulation) -> Iterator[None]:
    """Whoever asks again with the same key is taken for somebody else."""
    begin = MemoryIdempotency.begin

    async def begin_anew(
        self: MemoryIdempotency, caller: Caller, key: str, digest: bytes, takeover_after_us: int
    ) -> KeyedRequest:
        self._tables.idempotency.pop((caller.tenant_id, key), None)
        return await begin(self, caller, key, digest, takeover_after_us)

    with patch.object(MemoryIdempotency, "begin", begin_anew):
        yield


@mutant("groundless", faults=("join",), calls=60)
def attempts_of_an_earlier_life_count(_: Simulation) -> Iterator[None]:
    """A run that is retried by hand is dead at its first failure."""
    with patch.object(Run, "counted_attempt", property(lambda self: self.attempt)):
        yield


@mutant("requested_twice", faults=("join",), calls=60)
def made_anew_when_asked_again(world: Simulation) -> Iterator[None]:
    """What a key makes is not known by it."""
    random = world.source("seeds")
    with patch.object(api, "seed_of", lambda *_: random.randbytes(32)):
        yield


@mutant("vanished", faults=("join",), calls=60)
def told_before_it_is_committed(world: Simulation) -> Iterator[None]:
    """The API answers, and some of its processes die before they commit."""
    register, random = MemoryJobs.register, world.source("commits")

    async def register_or_die(
        self: MemoryJobs, caller: Caller, jobs: Sequence[Registration]
    ) -> set[UUID]:
        return set() if random.random() < 0.3 else await register(self, caller, jobs)

    with patch.object(MemoryJobs, "register", register_or_die):
        yield


@mutant("sent_after_end", "retried_unasked", "stale_write", faults=("join",), calls=60)
def what_is_dead_is_tried_again_by_itself(world: Simulation) -> Iterator[None]:
    """Some retries by hand also retry another run of the job that is dead."""
    retry = MemoryHistory.retry

    async def retry_more(
        self: MemoryHistory, caller: Caller, keys: Sequence[RunKey], **named: int
    ) -> set[RunKey]:
        refused = await retry(self, caller, keys, **named)
        others = [
            key
            for key, row in self._tables.runs.items()
            if key not in keys and key.job_id == keys[0].job_id and row.run.state == "dead"
        ]
        await retry(self, caller, others[:1], **named)
        return refused

    with patch.object(MemoryHistory, "retry", retry_more):
        yield
