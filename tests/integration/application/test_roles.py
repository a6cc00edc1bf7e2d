"""Which tenant a database role speaks for, and that it reaches nothing else."""

from uuid import uuid4

import asyncpg
import pytest
from tests.integration.application.conftest import URL, Place, schedule

from wheelsched.core.model import JobState
from wheelsched.errors import DatabaseRoleNotFound, DatabaseRoleTaken, TenantNotFound
from wheelsched.store.for_api.grants import Grants


async def test_a_role_without_a_tenant_is_told_what_to_do(place: Place) -> None:
    stranger = await place.application("stranger")
    for call in (
        f"SELECT wheelsched.schedule('a', '@daily', '{URL}')",
        f"SELECT wheelsched.schedule_at('a', now(), '{URL}')",
        "SELECT wheelsched.cancel('a')",
        "SELECT wheelsched.cancel(gen_random_uuid())",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError) as caught:
            await stranger.execute(call)
        role = place.roles["stranger"]
        assert str(caught.value).startswith(f"the database role {role} speaks for no tenant")
        assert f"wheelsched tenant grant TENANT --database-role {role}" in str(caught.value.hint)


async def test_a_role_reaches_nothing_of_another_tenant(place: Place) -> None:
    acme, globex = await place.application("acme"), await place.application("globex")
    job_id = await schedule(acme)
    await place.plan_all()
    assert await globex.fetchval("SELECT wheelsched.cancel('remind')") is None
    assert await globex.fetchval("SELECT wheelsched.cancel($1::uuid)", job_id) is None
    assert await schedule(globex, if_exists="replace") != job_id
    assert await schedule(globex, "remind 2", if_exists="keep") != job_id
    assert (await place.read(job_id)).state is JobState.ACTIVE
    for table in ("jobs", "tenants", "unplanned", "database_roles", "audit", "tokens"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await globex.fetch(f"SELECT * FROM wheelsched.{table}")


@pytest.mark.parametrize(
    "call",
    [
        "add_job('a', '@daily', 'http://a', null, 'UTC', '{}', 'error')",
        "remove_job(gen_random_uuid(), gen_random_uuid(), true)",
        "calling_tenant()",
    ],
)
async def test_what_is_inside_cannot_be_called(place: Place, call: str) -> None:
    application = await place.application()
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
        await application.execute(f"SELECT wheelsched.{call}")


async def test_the_role_that_counts_is_the_one_that_was_taken(place: Place) -> None:
    """A pool that logs in once, and takes a role for each tenant."""
    login = await place.connect(place.url, search_path="public")  # may take any role
    for tenant in ("acme", "globex"):
        async with login.transaction():
            await login.execute(f"SET LOCAL ROLE {place.roles[tenant]}")
            job_id = await schedule(login)
        assert (await place.read(job_id, tenant)).name == "remind"
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="speaks for no tenant"):
        await schedule(login)


async def test_the_search_path_cannot_inject_objects(place: Place) -> None:
    """Tables and functions of the caller's own are not met, wherever its search path leads."""
    application = await place.application()
    await place.owner.execute(f"CREATE SCHEMA trap AUTHORIZATION {place.roles['acme']}")
    await application.execute("""
        CREATE TEMP TABLE jobs (LIKE pg_class);
        CREATE TEMP TABLE database_roles (database_role text, tenant_id uuid);
        CREATE FUNCTION trap.calling_tenant() RETURNS uuid LANGUAGE plpgsql
            AS 'BEGIN RAISE division_by_zero; END';
        CREATE FUNCTION trap.gen_random_uuid() RETURNS uuid LANGUAGE plpgsql
            AS 'BEGIN RAISE division_by_zero; END';
        CREATE FUNCTION trap.pg_notify(text, text) RETURNS void LANGUAGE plpgsql
            AS 'BEGIN RAISE division_by_zero; END';
        SET search_path = pg_temp, trap, pg_catalog, wheelsched;
    """)
    await application.execute(
        "INSERT INTO pg_temp.database_roles VALUES ($1, $2)",
        place.roles["acme"],
        place.callers["globex"].tenant_id,
    )
    job_id = await schedule(application)
    assert (await place.read(job_id, "acme")).name == "remind"
    assert await application.fetchval("SELECT wheelsched.cancel('remind')") is True


async def test_grants_are_one_tenant_per_role_and_can_be_taken_back(place: Place) -> None:
    grants = Grants(place.database)
    acme, globex = (place.callers[name].tenant_id for name in ("acme", "globex"))
    role = place.roles["acme"]
    await grants.grant("test", acme, role)  # again
    with pytest.raises(DatabaseRoleTaken):
        await grants.grant("test", globex, role)
    with pytest.raises(DatabaseRoleNotFound):
        await grants.grant("test", globex, "nobody's")
    with pytest.raises(TenantNotFound):
        await grants.grant("test", uuid4(), place.roles["stranger"])
    assert {(grant.database_role, grant.tenant) for grant in await grants.list_grants()} == {
        (place.roles[name], name) for name in ("acme", "globex")
    }
    await grants.revoke("test", acme, role)
    with pytest.raises(DatabaseRoleNotFound):
        await grants.revoke("test", acme, role)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="speaks for no tenant"):
        await schedule(await place.application())
