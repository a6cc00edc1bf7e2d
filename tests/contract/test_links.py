"""Keys and addresses of links, on memory and on Postgres."""

from uuid import uuid4

from tests.contract.conftest import TTL_US, World

from wheelsched.ports import LinkedShard, ShardLink

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


async def test_a_shard_finds_the_key_that_a_process_has_published(world: World) -> None:
    process_id = uuid4()
    assert await world.shard_links.key_of(process_id) is None
    await world.links.publish(process_id, KEY)
    assert await world.shard_links.key_of(process_id) == KEY
    assert await world.shard_links.key_of(uuid4()) is None


async def test_a_process_may_publish_again(world: World) -> None:
    process_id = uuid4()
    await world.links.publish(process_id, KEY)
    await world.links.publish(process_id, OTHER_KEY)
    assert await world.shard_links.key_of(process_id) == OTHER_KEY


async def test_a_key_that_is_withdrawn_is_unknown(world: World) -> None:
    process_id, other_id = uuid4(), uuid4()
    await world.links.publish(process_id, KEY)
    await world.links.publish(other_id, OTHER_KEY)
    await world.links.withdraw(process_id)
    await world.links.withdraw(process_id)
    assert await world.shard_links.key_of(process_id) is None
    assert await world.shard_links.key_of(other_id) == OTHER_KEY


async def test_shards_with_an_address_are_listed(world: World) -> None:
    linked_id = uuid4()
    await world.leases.join(uuid4(), TTL_US, "host:1")
    await world.leases.join(linked_id, TTL_US, "host:2", link=ShardLink("host:3", KEY))
    assert await world.links.shards() == [LinkedShard(linked_id, "host:3", KEY)]


async def test_a_shard_that_joins_again_replaces_its_link(world: World) -> None:
    shard_id = uuid4()
    await world.leases.join(shard_id, TTL_US, link=ShardLink("host:3", KEY))
    await world.leases.join(shard_id, TTL_US, link=ShardLink("host:4", OTHER_KEY))
    assert await world.links.shards() == [LinkedShard(shard_id, "host:4", OTHER_KEY)]


async def test_a_shard_that_has_left_is_not_listed(world: World) -> None:
    lease = await world.leases.join(uuid4(), TTL_US, link=ShardLink("host:3", KEY))
    await world.leases.leave(lease)
    assert await world.links.shards() == []


async def test_the_address_of_a_link_is_seen_by_all_shards(world: World) -> None:
    await world.leases.join(uuid4(), TTL_US)
    await world.leases.join(uuid4(), TTL_US, link=ShardLink("host:3", KEY))
    survey = await world.leases.survey()
    assert {shard.link_address for shard in survey.shards} == {None, "host:3"}
