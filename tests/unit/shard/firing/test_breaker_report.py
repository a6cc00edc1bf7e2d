"""A shard reports its open breakers."""

from collections.abc import Sequence

from tests.unit.shard.world import START_US, World

from wheelsched.core.model import BreakerKind
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.ports import Callback, OpenBreaker, Route
from wheelsched.values.duration import SECOND

OFTEN = RetryPolicy(max_attempts=100, initial_us=SECOND // 10, max_us=SECOND)


async def shown(world: World) -> list[OpenBreaker]:
    found = await world.store.leases.read_breakers()
    return [breaker for breakers in found.values() for breaker in breakers]


async def test_open_breakers_are_reported_until_they_close(world: World) -> None:
    fails = True

    async def answer(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        failed = Failed(error="boom", http_status=500)
        return [failed if fails else Succeeded(http_status=200)] * len(callbacks)

    world.handler = answer
    job = await world.register("+5", retry=OFTEN)
    shard = world.start()
    await world.advance(30)
    (breaker,) = await shown(world)
    assert (breaker.kind, breaker.job_id) == (BreakerKind.JOB, job.job_id)
    assert (breaker.tenant_id, breaker.target) == (job.tenant_id, "http://worker.example")
    assert breaker.error == "boom"
    assert START_US + 5 * SECOND < breaker.opened_at_us < world.now_us()
    assert world.now_us() <= breaker.next_probe_at_us <= world.now_us() + 60 * SECOND
    assert sum(shard.vitals.dispatch.breakers.values()) == 1
    fails = False
    await world.advance(60)
    assert await shown(world) == []
    assert not any(shard.vitals.dispatch.breakers.values())


async def test_a_target_with_batches_has_a_breaker_of_its_own(world: World) -> None:
    async def answer(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        failed = Failed(error="boom", http_status=500)
        return [failed if route.batch > 1 else Succeeded()] * len(callbacks)

    world.handler = answer
    await world.register_many(["+5"] * 3, "batched", batch=10, retry=OFTEN)
    await world.register("+40", "single")
    world.start()
    await world.advance(50)
    (breaker,) = await shown(world)
    assert (breaker.kind, breaker.target) == (BreakerKind.TARGET, "http://worker.example/hook")
    assert [at for at, one in world.arrived if "single" in one.job_name and at < 41]
