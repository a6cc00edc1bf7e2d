from uuid import uuid4

from tests.api import Api


async def test_every_partition_is_its_owners_or_free(api: Api) -> None:
    lease = await api.shard.leases.join(uuid4(), 5_000_000, "10.0.0.1:8421")
    await api.shard.leases.acquire(lease, [1, 2, 3])
    shards = await api.get("/shards")
    (shard,) = shards.body["items"]
    assert (shard["shard_id"], shard["partitions"]) == (str(lease.shard_id), [1, 2, 3])
    assert (shard["address"], shard["is_expired"]) == ("10.0.0.1:8421", False)
    assert len(shards.body["free_partitions"]) == 253


async def test_only_operators_see_where_shards_are(api: Api) -> None:
    await api.shard.leases.join(uuid4(), 5_000_000, "10.0.0.1:8421")
    await api.add_token("wst_reader", api.tenant_id, "read", "write", "admin")
    seen = await api.get("/shards", token="wst_reader")
    assert seen.status == 200
    assert "address" not in seen.body["items"][0]
    assert "10.0.0.1" not in str(seen.body)


async def test_a_shard_tells_that_the_database_lost_data(api: Api) -> None:
    await api.shard.leases.join(uuid4(), 5_000_000)
    assert (await api.get("/shards")).body["items"][0]["went_back_at"] is None
    await api.shard.leases.join(uuid4(), 5_000_000, None, 1_794_837_600_000_000)
    told = {each["went_back_at"] for each in (await api.get("/shards")).body["items"]}
    assert told == {None, "2026-11-16T14:00:00Z"}
