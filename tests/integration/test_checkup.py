"""What the doctor says of a database."""

import re
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from wheelsched.daemon.checkup import Finding, Health, check_database

SHARD = UUID(int=7)
TIMER = """
    INSERT INTO timers (job_id, partition, version, due_at)
    VALUES (gen_random_uuid(), 9, 1, now() - $1 * interval '1 second')
"""
RETRY = """
    INSERT INTO retries (job_id, partition, tenant_id, due_at, retry_at)
    VALUES (gen_random_uuid(), 9, gen_random_uuid(), now(), now() - $1 * interval '1 second')
"""


async def arming_of(url: str, waiting: str, late_s: int) -> Finding:
    """What is found when something in a partition of a shard has waited so long to be armed."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "wheelsched"})
    await connection.execute(
        "INSERT INTO shards (shard_id, expires_at) VALUES ($1, 'infinity')", SHARD
    )
    await connection.execute("UPDATE partitions SET owner = $1", SHARD)
    await connection.execute(waiting, late_s)
    await connection.close()
    return {finding.subject: finding for finding in await check_database(url)}["arming"]


@pytest.mark.parametrize(
    ("waiting", "late_s", "verdict"),
    [
        pytest.param(TIMER, -60, Health.OK, id="a timer that is to come"),
        pytest.param(TIMER, 10, Health.OK, id="a timer during a takeover"),
        pytest.param(TIMER, 60, Health.FAILED, id="a timer that is late"),
        pytest.param(RETRY, 4_000, Health.OK, id="a retry behind many others"),
    ],
)
async def test_what_is_due_and_not_armed_is_told_with_its_shard(
    database: str, waiting: str, late_s: int, verdict: Health
) -> None:
    finding = await arming_of(database, waiting, late_s)
    assert finding.verdict is verdict
    if verdict is Health.FAILED:
        said = re.search(r"was due (\d+) s ago", finding.detail)
        assert said, finding.detail
        assert late_s <= int(said[1]) < 2 * late_s  # it goes on being late while the doctor looks
        assert str(SHARD) in finding.detail
        assert finding.advice is not None


@pytest.mark.parametrize("went_back_at", [None, datetime(2026, 11, 16, 14, tzinfo=UTC)])
async def test_a_database_that_went_back_is_told_until_its_shards_restart(
    database: str, went_back_at: datetime | None
) -> None:
    connection = await asyncpg.connect(database, server_settings={"search_path": "wheelsched"})
    await connection.execute(
        "INSERT INTO shards (shard_id, expires_at, went_back_at) VALUES ($1, 'infinity', $2)",
        SHARD,
        went_back_at,
    )
    await connection.close()
    findings = {finding.subject: finding for finding in await check_database(database)}
    finding = findings["replication"]
    if went_back_at is None:
        assert finding == Finding(subject="replication", detail="no standby is connected")
    else:
        assert finding.verdict is Health.WARNING
        assert "1 shard noticed" in finding.detail
        assert "last at 2026-11-16T14:00:00.000Z" in finding.detail


@pytest.mark.parametrize(
    ("links", "verdict", "said"),
    [
        ([None, None], Health.OK, "no shard accepts links"),
        (["a:1", "b:1"], Health.OK, "2 of 2 shards accept links"),
        (["a:1", None], Health.WARNING, "1 of 2 shards accept links"),
    ],
)
async def test_shards_that_the_api_cannot_reach_are_told(
    database: str, links: list[str | None], verdict: Health, said: str
) -> None:
    connection = await asyncpg.connect(database, server_settings={"search_path": "wheelsched"})
    for address in links:
        await connection.execute(
            "INSERT INTO shards (shard_id, expires_at, link_address, link_key)"
            " VALUES (gen_random_uuid(), 'infinity', $1, $2)",
            address,
            None if address is None else b"k" * 32,
        )
    await connection.close()
    found = {finding.subject: finding for finding in await check_database(database)}["links"]
    assert found.verdict is verdict
    assert said in found.detail
