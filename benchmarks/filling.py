"""Millions of jobs in minutes: rows like those of registered ones, made by the database itself."""

from typing import NamedTuple
from uuid import UUID

from msgspec import Raw

from wheelsched.core.model import HttpTarget, Job
from wheelsched.schedule.every import interval_us
from wheelsched.schedule.spec import Spec
from wheelsched.store.connections.connection import Connection
from wheelsched.store.definition import encode_definition

AT_ONCE = 500_000
STATEMENT_S = 3_600

# Sorted by their keys, so that the indexes grow at a few pages at a time.
FILL = """
    WITH made AS MATERIALIZED (
        SELECT job_id, get_byte(sha256(uuid_send(job_id)), 0) AS partition, number, due_us,
            timestamptz 'epoch' + due_us * interval '1 microsecond' AS due_at
        FROM (
            SELECT gen_random_uuid() AS job_id, number,
                ($4::bigint + floor(random() * $5::bigint))::bigint / 1000 * 1000 AS due_us
            FROM generate_series($1::bigint, $2::bigint) AS number
        ) AS drawn
        ORDER BY job_id
    ), timed AS (
        INSERT INTO timers (job_id, partition, version, due_at)
        SELECT job_id, partition, 1, due_at FROM made
    )
    INSERT INTO jobs
        (job_id, tenant_id, partition, name, state, definition, created_at, updated_at)
    SELECT job_id, $3, partition, $7 || number, 'active',
        replace($6, '"anchor_us":0,', '"anchor_us":' || due_us || ',')::json, now(), now()
    FROM made
"""

# Filling takes minutes. What came due meanwhile moves on by whole intervals, so that a shard that
# is started then finds a horizon and no backlog.
MOVE_ON = """
    UPDATE timers SET due_at = due_at + ($2::bigint * interval '1 microsecond')
        * ceil(extract(epoch FROM now() + interval '5 seconds' - due_at) * 1e6 / $2)::float8
    FROM jobs
    WHERE jobs.job_id = timers.job_id AND jobs.name LIKE $1
        AND timers.due_at < now() + interval '5 seconds'
"""


class Filling(NamedTuple):
    """So many jobs, each every so often, first due at random within a span."""

    jobs: int
    every: str
    start_us: int
    span_us: int
    batch: int = 1


async def fill(connection: Connection, tenant_id: UUID, worker_port: int, filling: Filling) -> None:
    """Adds jobs. The names of two fillings differ as their intervals do."""
    template = _definition(tenant_id, worker_port, filling)
    counted = "SELECT count(*) FROM jobs WHERE name LIKE $1"
    prefix = f"every {filling.every}, "
    before = await connection.fetchval(counted, f"{prefix}%", timeout=STATEMENT_S)
    for first in range(before + 1, before + filling.jobs + 1, AT_ONCE):
        last = min(first + AT_ONCE - 1, before + filling.jobs)
        span = (filling.start_us, filling.span_us)
        arguments = (first, last, tenant_id, *span, template, prefix)
        await connection.execute(FILL, *arguments, timeout=STATEMENT_S)
    interval = interval_us(filling.every)
    await connection.execute(MOVE_ON, f"{prefix}%", interval, timeout=STATEMENT_S)
    await connection.execute(
        "INSERT INTO job_counts VALUES ($1, $2) ON CONFLICT (tenant_id)"
        " DO UPDATE SET jobs = job_counts.jobs + excluded.jobs",
        tenant_id,
        filling.jobs,
    )
    for statement in ("VACUUM (ANALYZE) timers", "VACUUM (ANALYZE) jobs"):
        await connection.execute(statement, timeout=STATEMENT_S)


def _definition(tenant_id: UUID, worker_port: int, filling: Filling) -> str:
    """The document of every job, but for its anchor."""
    job = Job(
        job_id=UUID(int=0),
        tenant_id=tenant_id,
        name="",
        schedule=Raw(b'"every %s"' % filling.every.encode()),
        spec=Spec(kind="every", expression=filling.every),
        anchor_us=0,
        target=HttpTarget(url=f"http://127.0.0.1:{worker_port}/", batch=filling.batch),
        payload=Raw(b'{"report": "weekly"}'),
        created_at_us=0,
        updated_at_us=0,
    )
    definition = encode_definition(job).decode()
    assert '"anchor_us":0,' in definition
    return definition
