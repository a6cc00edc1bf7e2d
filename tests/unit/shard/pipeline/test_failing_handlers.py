"""Failing handlers do not delay other jobs of their worker."""

from collections.abc import Sequence

import pytest
from tests.unit.shard.world import World

from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Callback, Route
from wheelsched.values.duration import SECOND


async def test_healthy_jobs_are_on_time_next_to_failing_handlers(world: World) -> None:
    async def answer(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        failed = Failed(error="boom", http_status=500)
        fails = "fails" in callbacks[0].job_name
        return [failed if fails else Succeeded(http_status=200)] * len(callbacks)

    world.handler = answer
    anyhow = OverlapPolicy(policy=OnOverlap.ALLOW)
    often = RetryPolicy(max_attempts=100, initial_us=SECOND // 10, max_us=SECOND)
    await world.register_many(["* * * * * *"] * 3, "fails", overlap=anyhow, retry=often)
    due = range(20, 80, 5)
    await world.register_many([f"+{second}" for second in due], "healthy")
    world.start()
    await world.advance(90)
    healthy = [at for at, callback in world.arrived if "healthy" in callback.job_name]
    assert healthy == [pytest.approx(second, abs=0.1) for second in due]
    failing = [at for at, callback in world.arrived if "fails" in callback.job_name and at > 30]
    assert len(failing) < 3 * 60 / 4  # they wait for their probes
