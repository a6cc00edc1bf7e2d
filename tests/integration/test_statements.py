"""Every statement against the migrated schema, as the role that runs it."""

import pytest
from tests.postgres import Connect

from wheelsched.store.connections.queries import load_queries, query_files

ROLES = {
    "application.sql": "none",  # the role of an application
    "audit.sql": "wheelsched_api",
    "days.sql": "wheelsched_api",
    "grants.sql": "wheelsched_owner",
    "history.sql": "wheelsched_api",
    "idempotency.sql": "wheelsched_api",
    "jobs.sql": "wheelsched_api",
    "leases.sql": "wheelsched_shard",
    "links.sql": "wheelsched_api",
    "migrate.sql": "wheelsched_owner",
    "outcomes.sql": "wheelsched_shard",
    "plans.sql": "wheelsched_shard",
    "replication.sql": "wheelsched_owner",
    "retention.sql": "wheelsched_owner",
    "rights.sql": "wheelsched_shard",
    "runs.sql": "wheelsched_shard",
    "session.sql": "wheelsched_api",
    "settings.sql": "wheelsched_owner",
    "skips.sql": "wheelsched_api",
    "tenants.sql": "wheelsched_api",
    "timers.sql": "wheelsched_shard",
}
SCRIPTS = {  # statements that cannot be prepared
    "make_ledger",
    "lock_ledger",
    "use_schema",
    "become_owner",
    "begin_for_tenant",
    "begin_for_operator",
    "begin_session",
    "is_process",
}


@pytest.mark.parametrize("file_name", query_files())
async def test_every_statement_is_understood(
    file_name: str, database: str, connect: Connect
) -> None:
    connection = await connect(database, role=ROLES[file_name])
    for name, sql in load_queries(file_name).items():
        if name not in SCRIPTS:
            await connection.prepare(sql)
