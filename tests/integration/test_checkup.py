"""What the doctor says of a database."""

from uuid import UUID

import asyncpg
import pytest

from wheelsched.daemon.checkup import Finding, Verdict, check_database

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
        pytest.param(TIMER, -60, Verdict.FINE, id="a timer that is to come"),
        pytest.param(TIMER, 10, Verdict.FINE, id="a timer during a takeover"),
        pytest.param(TIMER, 60, Verdict.BAD, id="a timer that is late"),
        pytest.param(RETRY, 4_000, Verdict.FINE, id="a retry behind many others"),
    ],
)
async def test_what_is_due_and_not_armed_is_told_with_its_shard(
    database: str, waiting: str, late_s: int, verdict: Verdict
) -> None:
    finding = await arming_of(database, waiting, late_s)
    assert finding.verdict is verdict
    if verdict is Verdict.BAD:
        assert f"was due {late_s} s ago" in finding.detail
        assert str(SHARD) in finding.detail
        assert finding.advice is not None
