"""Runs that were triggered with their own payload keep it."""

from collections.abc import Sequence

from msgspec import Raw
from msgspec.structs import replace
from tests.unit.shard.world import World

from wheelsched.core.model import Job, RunKey, RunState
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.request import trigger
from wheelsched.ports import Callback, RequestedRun, Route
from wheelsched.values.duration import SECOND

OWN = Raw(b'{ "of" : "its own" }')


async def request(world: World, job: Job, payload: Raw | None) -> RunKey:
    run = trigger(job, world.now_us())
    requested = RequestedRun(key=run.key, trigger=run.trigger, payload=payload)
    (key,) = await world.store.history.request(world.caller, [requested])
    return key


def fail(world: World, attempts: int) -> None:
    """Lets the first attempts fail."""

    async def answer(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        is_failure = len(world.arrived) <= attempts
        failed = Failed(error="busy", http_status=503, retry_after_us=5 * SECOND)
        return [failed if is_failure else Succeeded(http_status=200)] * len(callbacks)

    world.handler = answer


def payloads(world: World) -> list[bytes]:
    return [callback.payload for _, callback in world.arrived]


async def test_only_the_triggered_run_has_the_payload(world: World) -> None:
    job = await world.register("*/10 * * * * *", payload=Raw(b'"job"'))
    world.start()
    await world.advance(11)
    await request(world, job, OWN)
    await world.advance(1)
    await request(world, job, None)
    await request(world, job, Raw(b"null"))
    await world.advance(10)
    assert payloads(world) == [b'"job"', bytes(OWN), b'"job"', b"null", b'"job"']


async def test_every_attempt_of_every_shard_sends_the_payload(world: World) -> None:
    fail(world, 2)
    job = await world.register("@yearly")
    world.start()
    await world.advance(1)
    key = await request(world, job, OWN)
    await world.advance(1)
    await world.kill()
    world.start("b")
    await world.advance(60)
    assert payloads(world) == [bytes(OWN)] * 3
    run, _ = await world.store.history.get_run(world.caller, key)
    assert run.state is RunState.SUCCEEDED


async def test_the_shard_that_adopts_the_run_sends_the_payload(world: World) -> None:
    """The shard that armed it dies before it gets a response."""

    async def never(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if world.now_s < 5:
            await world.clock.sleep(3_600 * SECOND * 1_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = never
    job = await world.register("@yearly")
    world.start()
    await world.advance(1)
    await request(world, job, OWN)
    await world.advance(2)
    await world.kill()
    world.start("b")
    await world.advance(60)
    assert payloads(world) == [bytes(OWN)] * 2


async def test_an_edit_of_the_job_keeps_the_payload(world: World) -> None:
    """The job is edited while the second attempt of the run is armed."""
    fail(world, 1)
    job = await world.register("@yearly", payload=Raw(b'"job"'))
    world.start()
    await world.advance(1)
    await request(world, job, OWN)
    await world.advance(3)
    edited = replace(job, version=job.version + 1, payload=Raw(b'"edited"'))
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(60)
    assert payloads(world) == [bytes(OWN)] * 2
