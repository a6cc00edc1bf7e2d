"""Requests by their key, on memory and on Postgres."""

import asyncio

from tests.contract.conftest import MINUTE_US, World

from wheelsched.ports import KeptAnswer

DIGEST = b"digest of a request"
ANSWER = KeptAnswer(status=201, headers={"ETag": '"1"'}, body=b'{"job_id": "\xc3\xa4"}')


async def test_a_request_is_begun_once_and_answered_as_it_was(world: World) -> None:
    first = await world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US)
    assert (first.digest, first.answer) == (DIGEST, None)
    assert first.ticket is not None
    assert abs(first.begun_at_us - world.now_us) < 10 * MINUTE_US

    busy = await world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US)
    assert (busy.begun_at_us, busy.answer, busy.ticket) == (first.begun_at_us, None, None)

    await world.idempotency.keep(world.caller, "key", ANSWER)
    await world.idempotency.keep(world.caller, "key", KeptAnswer(status=500, headers={}, body=b""))
    done = await world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US)
    assert (done.answer, done.ticket) == (ANSWER, None)


async def test_of_many_at_once_one_gets_the_ticket(world: World) -> None:
    begun = await asyncio.gather(
        *(world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US) for _ in range(8))
    )
    assert sum(request.ticket is not None for request in begun) == 1


async def test_another_request_with_the_key_is_shown_the_first(world: World) -> None:
    await world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US)
    other = await world.idempotency.begin(world.caller, "key", b"another", -MINUTE_US)
    assert (other.digest, other.ticket) == (DIGEST, None)


async def test_keys_of_tenants_are_apart(world: World) -> None:
    await world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US)
    await world.idempotency.keep(world.caller, "key", ANSWER)
    theirs = await world.idempotency.begin(world.other, "key", b"another", MINUTE_US)
    assert theirs.ticket is not None


async def test_what_was_given_back_goes_on_as_of_its_beginning(world: World) -> None:
    first = await world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US)
    assert first.ticket is not None
    await world.idempotency.give_back(world.caller, "key", first.ticket)
    second = await world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US)
    assert second.ticket is not None
    assert second.begun_at_us == first.begun_at_us


async def test_who_is_at_it_for_too_long_is_taken_for_dead(world: World) -> None:
    first = await world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US)
    second = await world.idempotency.begin(world.caller, "key", DIGEST, -MINUTE_US)
    assert first.ticket is not None
    assert second.ticket is not None
    assert second.begun_at_us == first.begun_at_us
    # What the first does about it now comes too late, unless both met in one microsecond.
    if second.ticket != first.ticket:
        await world.idempotency.forget(world.caller, "key", first.ticket)
        await world.idempotency.give_back(world.caller, "key", first.ticket)
        third = await world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US)
        assert third.ticket is None


async def test_a_forgotten_key_is_as_new(world: World) -> None:
    first = await world.idempotency.begin(world.caller, "key", DIGEST, MINUTE_US)
    assert first.ticket is not None
    await world.idempotency.forget(world.caller, "key", first.ticket)
    other = await world.idempotency.begin(world.caller, "key", b"another", MINUTE_US)
    assert (other.digest, other.ticket is None) == (b"another", False)
