"""Only who knows both keys passes the handshake, once, and in the right role."""

from uuid import uuid4

import pytest
from msgspec.structs import replace

from wheelsched.delivery.link.handshake import (
    Identity,
    ProcessHandshake,
    ShardHandshake,
    new_key,
)
from wheelsched.delivery.link.messages import Greeting, Welcome
from wheelsched.errors import LinkRefused

SHARD = Identity(uuid4(), new_key())
PROCESS = Identity(uuid4(), new_key())


def other_key(identity: Identity) -> Identity:
    return replace(identity, key=new_key())


def test_both_sides_accept_each_other() -> None:
    shard, process = ShardHandshake(SHARD), ProcessHandshake(PROCESS, SHARD)
    process.check(shard.accept(process.answer(shard.greet()), PROCESS))


def test_a_process_that_does_not_know_the_key_of_the_shard_is_not_even_looked_up() -> None:
    shard, process = ShardHandshake(SHARD), ProcessHandshake(PROCESS, other_key(SHARD))
    with pytest.raises(LinkRefused):
        shard.check_knock(process.answer(shard.greet()))


def test_a_process_without_the_key_of_its_row_is_refused() -> None:
    shard, process = ShardHandshake(SHARD), ProcessHandshake(other_key(PROCESS), SHARD)
    hello = process.answer(shard.greet())
    shard.check_knock(hello)
    with pytest.raises(LinkRefused):
        shard.accept(hello, PROCESS)


def test_a_process_cannot_use_the_row_of_another() -> None:
    shard, process = ShardHandshake(SHARD), ProcessHandshake(PROCESS, SHARD)
    hello = process.answer(shard.greet())
    another = Identity(uuid4(), new_key())
    with pytest.raises(LinkRefused):
        shard.accept(hello, another)
    with pytest.raises(LinkRefused):
        shard.accept(replace(hello, process_id=another.id), another)


@pytest.mark.parametrize("known", [SHARD, other_key(SHARD)])
def test_a_shard_that_does_not_know_the_key_of_the_process_is_refused(known: Identity) -> None:
    impostor = ShardHandshake(known)
    process = ProcessHandshake(PROCESS, SHARD)
    hello = process.answer(impostor.greet())
    with pytest.raises(LinkRefused):
        process.check(impostor.accept(hello, other_key(PROCESS)))


def test_a_recorded_hello_is_refused_on_another_connection() -> None:
    first, process = ShardHandshake(SHARD), ProcessHandshake(PROCESS, SHARD)
    recorded = process.answer(first.greet())
    first.accept(recorded, PROCESS)
    with pytest.raises(LinkRefused):
        ShardHandshake(SHARD).accept(recorded, PROCESS)


def test_a_recorded_welcome_is_refused_on_another_connection() -> None:
    shard, process = ShardHandshake(SHARD), ProcessHandshake(PROCESS, SHARD)
    greeting = shard.greet()
    recorded = shard.accept(process.answer(greeting), PROCESS)
    victim = ProcessHandshake(PROCESS, SHARD)
    victim.answer(greeting)  # the nonce of the shard is replayed, too
    with pytest.raises(LinkRefused):
        victim.check(recorded)


def test_a_proof_cannot_be_reflected() -> None:
    shard, process = ShardHandshake(SHARD), ProcessHandshake(PROCESS, SHARD)
    hello = process.answer(shard.greet())
    for proof in (hello.proof, hello.knock):
        with pytest.raises(LinkRefused):
            process.check(Welcome(proof))
    welcome = shard.accept(hello, PROCESS)
    with pytest.raises(LinkRefused):
        shard.accept(replace(hello, proof=welcome.proof), PROCESS)


def test_a_hello_for_another_shard_is_refused() -> None:
    another = Identity(uuid4(), SHARD.key)
    shard = ShardHandshake(SHARD)
    with pytest.raises(LinkRefused, match="another shard"):
        shard.check_knock(ProcessHandshake(PROCESS, another).answer(shard.greet()))


@pytest.mark.parametrize("version", [0, 2, 1 << 40, -1])
def test_another_version_is_refused_by_name(version: int) -> None:
    shard, process = ShardHandshake(SHARD), ProcessHandshake(PROCESS, SHARD)
    greeting = shard.greet()
    hello = process.answer(greeting)
    with pytest.raises(LinkRefused, match=f"version {version}"):
        shard.accept(replace(hello, version=version), PROCESS)
    with pytest.raises(LinkRefused, match=f"version {version}"):
        process.answer(replace(greeting, version=version))


def test_a_short_nonce_is_refused() -> None:
    shard, process = ShardHandshake(SHARD), ProcessHandshake(PROCESS, SHARD)
    hello = process.answer(shard.greet())
    with pytest.raises(LinkRefused):
        shard.accept(replace(hello, nonce=b""), PROCESS)
    with pytest.raises(LinkRefused):
        process.answer(Greeting(1, b""))


def test_a_welcome_before_the_greeting_is_refused() -> None:
    with pytest.raises(LinkRefused):
        ProcessHandshake(PROCESS, SHARD).check(Welcome(b""))


def test_an_empty_key_is_invalid() -> None:
    with pytest.raises(LinkRefused, match="too short"):
        Identity(uuid4(), b"")


def test_a_key_is_not_shown() -> None:
    assert SHARD.key.hex() not in repr(SHARD)
    assert repr(SHARD.key) not in repr(SHARD)
