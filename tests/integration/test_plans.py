"""The plans of the hot statements on a million rows, with the settings that the store uses.

A day's table is never analysed before it is used, so neither is it here.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.postgres import temporary_database

from wheelsched.core.partition import partition_of
from wheelsched.store.connections.connection import Connection, use_plain_values
from wheelsched.store.connections.database import PLANNING
from wheelsched.store.connections.queries import load_queries

FILES = (
    "timers.sql",
    "runs.sql",
    "outcomes.sql",
    "jobs.sql",
    "history.sql",
    "plans.sql",
    "retention.sql",
    "skips.sql",
)
QUERIES = {name: sql for file_name in FILES for name, sql in load_queries(file_name).items()}
MILLION = 1_000_000
BATCH = 1_000
DUE_US = 1_800_000_000_000_000
MINUTE_US = 60_000_000
SHARD = uuid4()
OWNED = list(range(0, 256, 3))

# Timers: a thousand a second from now on. Runs: the ten minutes before, all ended but a few, in
# the middle of ninety days of tables.
FILL = """
    SELECT make_days(ARRAY(SELECT date '2027-01-15' + n FROM generate_series(-60, 29) AS n));
    INSERT INTO timers
    SELECT job_id, get_byte(sha256(uuid_send(job_id)), 0), 1,
        timestamptz '2027-01-15 08:00:00Z' + n * interval '1 millisecond'
    FROM (
        SELECT lpad(to_hex(n), 32, '0')::uuid AS job_id, n FROM generate_series(0, 999999) AS n
    ) AS jobs;
    INSERT INTO runs (job_id, due_at, tenant_id, partition, state, token, shard)
    SELECT job_id, due_at - interval '10 minutes', job_id, partition,
        CASE WHEN random() < 0.001 THEN 'armed' ELSE 'succeeded' END, 1, job_id
    FROM timers;
    INSERT INTO retries
    SELECT job_id, due_at - interval '10 minutes', job_id, partition, due_at
    FROM timers LIMIT 10000;
    ANALYZE timers;
"""

# Ten times a page, of one tenant.
DRAFTS = """
    INSERT INTO tenants (tenant_id, name) VALUES (lpad('1', 32, '0')::uuid, 'application');
    INSERT INTO jobs (
        job_id, tenant_id, partition, name, state, definition, created_at, updated_at
    )
    SELECT lpad(to_hex(n), 32, '0')::uuid, lpad('1', 32, '0')::uuid, n % 256, n::text, 'unplanned',
        '{}', now(), now()
    FROM generate_series(1, 500) AS n;
    INSERT INTO unplanned (job_id, tenant_id, partition)
    SELECT job_id, tenant_id, partition FROM jobs;
    ANALYZE jobs, unplanned;
"""

# A name that was used ten thousand times, among as many others, of one tenant.
FINISHED = """
    INSERT INTO jobs (
        job_id, tenant_id, partition, name, state, definition, created_at, updated_at
    )
    SELECT gen_random_uuid(), current_tenant(), 0, CASE kind WHEN 'one' THEN 'm' ELSE n::text END,
        CASE kind WHEN 'active' THEN 'active' ELSE 'finished' END,
        '{}', now(), now() - n * interval '1 second'
    FROM generate_series(1, 10000) AS n, unnest(ARRAY['one', 'many', 'active']) AS kind
"""


class Page(NamedTuple):
    """What was found of a page, and how much was read for it."""

    rows: int
    blocks: int


@pytest.fixture(scope="module")
def filled(server_url: str, template: str) -> Iterator[str]:
    """A database with a million timers and a million runs, made once."""
    with asyncio.Runner() as runner:
        made = temporary_database(server_url, template)
        url = runner.run(made.__aenter__())
        runner.run(_fill(url))
        yield url
        runner.run(made.__aexit__(None, None, None))


async def _fill(url: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": "wheelsched"})
    await connection.execute(FILL)
    await connection.execute(
        "INSERT INTO shards (shard_id, expires_at) VALUES ($1, 'infinity')", SHARD
    )
    await connection.execute(
        "UPDATE partitions SET owner = $1, live_since = '2027-01-15 07:50:00Z'"
        " WHERE partition = ANY ($2::smallint[])",
        SHARD,
        OWNED,
    )
    await connection.close()


@asynccontextmanager
async def connected(url: str, role: str) -> AsyncIterator[Connection]:
    """A connection as the store's are. What it writes is undone."""
    settings = {"search_path": "wheelsched", "role": f"wheelsched_{role}", **PLANNING[role]}
    connection = await asyncpg.connect(url, server_settings=settings)
    await use_plain_values(connection)
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await transaction.rollback()
    await connection.close()


@pytest.fixture
async def shard(filled: str) -> AsyncIterator[Connection]:
    async with connected(filled, "shard") as connection:
        yield connection


@pytest.fixture
async def api(filled: str) -> AsyncIterator[Connection]:
    async with connected(filled, "api") as connection:
        await connection.execute("SELECT set_config('wheelsched.tenant', $1, true)", str(SHARD))
        yield connection


@pytest.fixture
async def owner(filled: str) -> AsyncIterator[Connection]:
    async with connected(filled, "owner") as connection:
        yield connection


async def explain(connection: Connection, name: str, *arguments: object) -> dict[str, Any]:
    """The plan of a statement that is executed, as a document."""
    sql = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {QUERIES[name]}"
    document = json.loads(await connection.fetchval(sql, *arguments))
    plan: dict[str, Any] = document[0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes that were executed."""
    if plan.get("Actual Loops", 1):
        yield plan
        for child in plan.get("Plans", ()):
            yield from nodes(child)


def check(plan: dict[str, Any], most_rows: int) -> None:
    """Big tables by index only, nothing sorted on disk, and no more rows than the batch needs."""
    for node in nodes(plan):
        table = node.get("Relation Name", "")
        is_big = table == "timers" or table.startswith("runs")
        assert not (is_big and node["Node Type"] == "Seq Scan"), table
        assert node.get("Sort Space Type") != "Disk"
        assert node["Node Type"] not in ("Hash Join", "Merge Join")
        if is_big:
            read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            assert read * node["Actual Loops"] <= most_rows, (table, node)


async def hot_jobs(connection: Connection) -> list[tuple[UUID, int]]:
    rows = await connection.fetch(
        "SELECT job_id, due_at FROM timers WHERE partition = ANY ($1::smallint[])"
        " ORDER BY due_at LIMIT $2",
        OWNED,
        BATCH,
    )
    return sorted((row["job_id"], row["due_at"]) for row in rows)


async def test_load_reads_the_owned_partitions_up_to_the_horizon(shard: Connection) -> None:
    until_us = DUE_US + MINUTE_US
    plan = await explain(shard, "load_timers", OWNED, until_us)
    check(plan, MINUTE_US // 1_000 + len(OWNED))
    check(await explain(shard, "load_retries", OWNED, until_us), 0)


async def vacuum(url: str, table: str) -> None:
    administration = await asyncpg.connect(url)
    await administration.execute(f"VACUUM wheelsched.{table}")
    await administration.close()


async def test_load_visits_no_row_of_a_page_that_was_vacuumed(
    shard: Connection, filled: str
) -> None:
    """The rows of a horizon lie on as many pages: visiting them would take most of the time."""
    await vacuum(filled, "timers")
    plan = await explain(shard, "load_timers", OWNED, DUE_US + MINUTE_US)
    scans = [node for node in nodes(plan) if node.get("Relation Name") == "timers"]
    assert [node["Node Type"] for node in scans] == ["Index Only Scan"] * 2
    assert sum(node["Heap Fetches"] for node in scans) == 0


async def test_reload_looks_every_job_up_by_its_key(shard: Connection) -> None:
    job_ids = [job_id for job_id, _ in await hot_jobs(shard)]
    until_us = DUE_US + 60 * MINUTE_US
    check(await explain(shard, "reload_timers", job_ids, until_us), BATCH)
    plan = await explain(shard, "reload_retries", job_ids, until_us, [0] * BATCH)
    assert "Seq Scan" not in {node["Node Type"] for node in nodes(plan)}


async def test_arm_looks_every_timer_up_by_its_key(shard: Connection) -> None:
    jobs = await hot_jobs(shard)
    plan = await explain(
        shard,
        "arm",
        SHARD,
        1,
        [job_id for job_id, _ in jobs],
        [due_us for _, due_us in jobs],
        [1] * BATCH,
        [due_us + MINUTE_US for _, due_us in jobs],
        [SHARD] * BATCH,
        list(range(BATCH)),
    )
    check(plan, BATCH)


async def test_settle_looks_every_run_up_by_its_key(shard: Connection) -> None:
    jobs = await hot_jobs(shard)
    plan = await explain(
        shard,
        "settle",
        [job_id for job_id, _ in jobs],
        [1] * BATCH,
        *(list(range(1, BATCH + 1)), list(range(1, BATCH + 1))),
        [due_us - 10 * MINUTE_US for _, due_us in jobs],
        ["succeeded"] * BATCH,
        *([DUE_US] * BATCH, [DUE_US] * BATCH, [0] * BATCH, [200] * BATCH),
        *([None] * BATCH, [None] * BATCH, [None] * BATCH, [True] * BATCH),
    )
    check(plan, BATCH)


async def test_successes_look_every_run_up_by_its_key(shard: Connection) -> None:
    jobs = await hot_jobs(shard)
    plan = await explain(
        shard,
        "settle_successes",
        [job_id for job_id, _ in jobs],
        [1] * BATCH,
        *(list(range(1, BATCH + 1)), list(range(1, BATCH + 1))),
        [due_us - 10 * MINUTE_US for _, due_us in jobs],
        *([DUE_US] * BATCH, [DUE_US] * BATCH, [0] * BATCH, [200] * BATCH),
    )
    check(plan, BATCH)


@pytest.mark.parametrize(
    "name",
    [
        "arm",
        "arm_missed",
        "arm_retries",
        "adopt",
        "revalidate",
        "settle",
        "settle_successes",
        "note_stale",
        "reload_timers",
        "reload_retries",
    ],
)
@pytest.mark.parametrize("is_vacuumed", [False, True])
async def test_what_is_planned_while_all_is_empty_looks_up_by_key_too(
    database: str, name: str, is_vacuumed: bool
) -> None:
    """A day's table is planned with before it is used, and the plan is kept.

    A table that was vacuumed while it was empty counts as one row, which is cheap to scan. Most of
    the time there are no retries, and then a job may get a hundred thousand in one second.
    """
    if is_vacuumed:
        for table in ("retries", "jobs"):
            await vacuum(database, table)
    async with connected(database, "shard") as shard:
        unknown = ["NULL"] * len((await shard.prepare(QUERIES[name])).get_parameters())
        await shard.execute(f"PREPARE statement AS {QUERIES[name]}")
        execute = f"EXECUTE statement ({', '.join(unknown)})"
        document = await shard.fetchval(f"EXPLAIN (FORMAT json) {execute}")
    big = re.compile("timers|runs|attempts|retries|jobs")
    for node in nodes(json.loads(document)[0]["Plan"]):
        if "Scan" in node["Node Type"] and big.match(node.get("Relation Name", "")):
            condition = node.get("Index Cond", node.get("Recheck Cond", node.get("TID Cond", "")))
            assert re.search("job_id = |ctid = ", condition), node


async def test_adopt_and_recheck_look_every_run_up_by_its_key(shard: Connection) -> None:
    jobs = await hot_jobs(shard)
    job_ids = [job_id for job_id, _ in jobs]
    due_us = [due_us - 10 * MINUTE_US for _, due_us in jobs]
    tokens = ([1] * BATCH, [2] * BATCH)
    check(await explain(shard, "adopt", SHARD, 1, job_ids, due_us, *tokens), BATCH)
    check(await explain(shard, "revalidate", job_ids, due_us), BATCH)


async def test_sweep_reads_the_owned_partitions_from_their_mark(shard: Connection) -> None:
    """The mark is the bound: a page near it reads little, whatever the history holds."""
    await shard.execute(
        "UPDATE partitions SET live_since = '2027-01-15 08:06:30Z' WHERE owner = $1", SHARD
    )
    plan = await explain(shard, "list_unfinished", SHARD, *from_the_start(OWNED), BATCH, BATCH)
    check(plan, 15_000)


def from_the_start(partitions: list[int]) -> tuple[list[int], list[int], list[UUID]]:
    """The positions of a first page."""
    return partitions, [0] * len(partitions), [UUID(int=0)] * len(partitions)


# A hundred thousand runs of one job that wait, and as many of others.
BACKLOG = """
    INSERT INTO retries (job_id, due_at, tenant_id, partition, retry_at)
    SELECT $1::uuid, timestamptz '2027-01-15 07:00:00Z' + n * interval '1 microsecond', $1, $2,
        timestamptz '2027-01-15 07:00:00Z' + n * interval '1 microsecond'
    FROM generate_series(1, 100000) AS n
    UNION ALL
    SELECT job_id, due_at, job_id, partition, due_at FROM timers WHERE due_at > $3 LIMIT 100000
"""


@pytest.fixture(params=["never", "before", "after"])
async def backlog(shard: Connection, filled: str, request: pytest.FixtureRequest) -> Connection:
    """Many retries, which were counted never, when there were few, or after they came."""
    job_id = JOB_WITH_BACKLOG
    await vacuum(filled, "retries")  # what other tests have undone
    await shard.execute("SET LOCAL ROLE wheelsched_owner")
    if request.param == "before":
        await shard.execute("ANALYZE retries")
    partition = partition_of(job_id)
    await shard.execute(BACKLOG, job_id, partition, DUE_US + 60 * MINUTE_US // 10)
    if request.param == "after":
        await shard.execute("ANALYZE retries")
    await shard.execute(
        "UPDATE partitions SET owner = $1, live_since = '2027-01-15 08:16:30Z'", SHARD
    )
    await shard.execute("SET LOCAL ROLE wheelsched_shard")
    return shard


JOB_WITH_BACKLOG = UUID(int=1 << 100)


def retries_read(plan: dict[str, Any]) -> tuple[set[str], int]:
    """The indexes by which retries are read, and how many of them."""
    indexes, read = set(), 0
    for node in nodes(plan):
        if node.get("Relation Name") == "retries":
            indexes.add(node.get("Index Name", node["Node Type"]))
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            read += rows * node["Actual Loops"]
    return indexes, read


@pytest.mark.parametrize("position", ["first", "middle"])
async def test_sweep_reads_no_more_retries_of_a_partition_than_it_gives(
    backlog: Connection, position: str
) -> None:
    partitions, due_us, job_ids = from_the_start(list(range(256)))
    if position == "middle":
        partition = partition_of(JOB_WITH_BACKLOG)
        due_us[partition], job_ids[partition] = DUE_US - 3_599_950_000, JOB_WITH_BACKLOG
    page = (partitions, due_us, job_ids)
    plan = await explain(backlog, "list_unfinished", SHARD, *page, 20, 20)
    assert retries_read(plan)[0] == {"retries_of_sweep"}
    assert retries_read(plan)[1] <= 256 * 20


async def test_a_hint_has_only_those_retries_of_a_job_read_that_came_since(
    backlog: Connection,
) -> None:
    job_ids = [job_id for job_id, _ in await hot_jobs(backlog)][:10]
    since_us = DUE_US - 3_599_901_000
    plan = await explain(
        backlog,
        "reload_retries",
        [*job_ids, JOB_WITH_BACKLOG],
        DUE_US + 60 * MINUTE_US,
        [*[0] * len(job_ids), since_us],
    )
    indexes, read = retries_read(plan)
    assert indexes == {"retries_of_job"}
    assert read <= 1_000 + 2 * len(job_ids)


async def test_what_is_oldest_is_at_the_head_of_an_index(backlog: Connection) -> None:
    """However many timers and retries there are."""
    plan = await explain(backlog, "oldest_unarmed", list(range(256)))
    assert plan["Actual Rows"] == 256
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 256 * 12


async def test_the_waiting_runs_of_a_job_are_counted_up_to_a_bound(
    api: Connection, filled: str
) -> None:
    await vacuum(filled, "retries")
    await api.execute("SET LOCAL ROLE wheelsched_owner")
    await api.execute(BACKLOG, JOB_WITH_BACKLOG, 7, DUE_US)
    await api.execute("SET LOCAL ROLE wheelsched_api")
    plan = await explain(api, "count_waiting", JOB_WITH_BACKLOG, 1_001)
    assert await api.fetchval(QUERIES["count_waiting"], JOB_WITH_BACKLOG, 1_001) == 1_001
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 1_000


# A run every minute for thirty days up to now, all ended, and one that is armed.
LONG_HISTORY = """
    INSERT INTO runs (job_id, due_at, tenant_id, partition, state)
    SELECT $1::uuid, now() - n * interval '1 minute', $2::uuid, 0, 'succeeded'
    FROM generate_series(1, 43200) AS n
    UNION ALL
    SELECT $1, now() + interval '1 minute', $2, 0, 'armed'
"""


async def test_a_page_of_drafts_does_not_read_those_behind_it(shard: Connection) -> None:
    await shard.execute("SET LOCAL ROLE wheelsched_owner")
    await shard.execute(DRAFTS)
    await shard.execute("SET LOCAL ROLE wheelsched_shard")
    plan = await explain(shard, "list_unplanned", list(range(256)), 50)
    assert plan["Actual Rows"] == 50
    (read,) = [node for node in nodes(plan) if node.get("Relation Name") == "jobs"]
    assert read["Actual Rows"] * read["Actual Loops"] == 50


async def test_a_change_of_a_job_does_not_read_its_history(api: Connection) -> None:
    job_id = uuid4()
    await api.execute(
        "SELECT make_days(ARRAY(SELECT current_date - n FROM generate_series(-1, 31) AS n))"
    )
    await api.execute(LONG_HISTORY, job_id, SHARD)
    check(await explain(api, "list_too_late", job_id, partition_of(job_id)), 61)  # an hour of it
    check(await explain(api, "withdraw_armed", [job_id], "paused"), 1)
    assert await api.fetchval("SELECT count(*) FROM runs WHERE state = 'skipped'") == 1


async def test_a_page_of_jobs_reads_no_more_than_its_parts(api: Connection) -> None:
    """By a plan that was made when there were no jobs."""
    await api.execute("SET LOCAL ROLE wheelsched_owner")
    await api.execute("ANALYZE jobs")
    await api.execute("SET LOCAL ROLE wheelsched_api")

    async def read(name: str, ended_us: int, wanted_name: str | None, known: bytes | None) -> Page:
        position = (SHARD, name, ended_us, UUID(int=0))
        arguments = (*position, None, wanted_name, "{}", 50, known)
        plan = await explain(api, "list_jobs", *arguments)
        return Page(plan["Actual Rows"], plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    now_us = await api.fetchval("SELECT now()")
    assert (await read("", now_us, None, None)).rows == 1  # without a job
    await api.execute("SELECT set_config('wheelsched.tenant', $1, true)", str(SHARD))
    await api.execute(FINISHED)
    for name, ended_us in (("", now_us), ("m", now_us - 5_000_000_000), ("5", now_us)):
        page = await read(name, ended_us, None, None)
        assert page.rows == 50
        assert page.blocks < 300  # a row is a block at most: of three parts, and their indexes
    await read("", now_us, "m", None)  # looks into the catalog too
    page = await read("", now_us, "m", None)
    assert page.rows == 50
    assert page.blocks < 300


async def test_jobs_are_read_by_their_keys(api: Connection) -> None:
    """By a plan that was made when there were no jobs."""
    job_ids = [uuid4() for _ in range(5)]
    await explain(api, "read_jobs", SHARD, job_ids)
    await api.execute("SELECT set_config('wheelsched.tenant', $1, true)", str(SHARD))
    await api.execute(FINISHED)
    job_ids = await api.fetchval("SELECT array_agg(job_id) FROM (SELECT * FROM jobs LIMIT 5) AS f")
    plan = await explain(api, "read_jobs", SHARD, job_ids)
    assert plan["Actual Rows"] == 5
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 40


@pytest.mark.parametrize(
    ("name", "arguments", "index"),
    [
        ("forget_answers", (), "idempotency_by_age"),
        ("forget_refused", (7, BATCH), "refused_by_end"),
        ("forget_dead", (90, BATCH), "dead_by_age"),
        ("lock_finished", (7, 0, UUID(int=0), BATCH), "finished_by_end"),
    ],
)
async def test_retention_reads_what_is_old_only(
    owner: Connection, name: str, arguments: tuple[object, ...], index: str
) -> None:
    await owner.execute("SET LOCAL enable_seqscan = off")  # the tables are empty here
    plan = await explain(owner, name, *arguments)
    conditions = [node["Index Cond"] for node in nodes(plan) if node.get("Index Name") == index]
    assert len(conditions) == 1
    assert "statement_timestamp()" in conditions[0]


async def test_a_page_of_the_latest_runs_reads_its_slice_of_time_by_the_index_of_partitions(
    api: Connection,
) -> None:
    """However long the history is, and without an index for it."""
    second = (DUE_US - 10 * MINUTE_US, DUE_US - 10 * MINUTE_US + 1_000_000)
    thousand = 4 * 256  # rows of each partition are rounded
    check(await explain(api, "list_latest", *second, None, 10), thousand)
    check(await explain(api, "list_latest", *second, "skipped", 10), thousand)
    check(await explain(api, "list_instant", second[0], -1, UUID(int=0), None, 10), BATCH)
    assert (
        await api.fetchval(
            "SELECT count(*) FROM pg_index WHERE indrelid = 'wheelsched.runs'::regclass"
        )
        == 2
    )


async def test_the_latest_dead_are_read_by_their_own_index(api: Connection) -> None:
    await api.execute("SET LOCAL enable_seqscan = off")  # the table is empty here
    day = (DUE_US - 10 * MINUTE_US, DUE_US, UUID(int=0))
    plan = await explain(api, "list_latest_dead", *day, 10)
    (read,) = [node for node in nodes(plan) if node.get("Relation Name") == "dead"]
    assert "tenant_id" in read["Index Cond"]
    assert "due_at" in read["Index Cond"]
    check(await explain(api, "list_latest_live", *day, "running", 10), 10)
