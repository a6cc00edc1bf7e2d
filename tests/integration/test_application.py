"""`wheelsched.schedule` and `wheelsched.cancel`, called by an application in its transactions."""

import json
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec import Raw, Struct
from tests.postgres import Connect

from wheelsched.api.answers import job_answer
from wheelsched.api.drafts import judge_draft
from wheelsched.config import StoreConfig
from wheelsched.core.egress import NO_EXCEPTIONS
from wheelsched.core.model import Draft, Job, JobState
from wheelsched.errors import DatabaseRoleNotFound, DatabaseRoleTaken, TenantNotFound
from wheelsched.ports import Caller, JobFilter, Lease, Plan, Registration, Tenant
from wheelsched.store.connection import Connection
from wheelsched.store.database import Database
from wheelsched.store.grants import Grants
from wheelsched.store.migrate import known_migrations, migrate
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.retention import Retention
from wheelsched.wire.job import JobDocument

URL = "https://example.org/hook"
ALL = range(256)
NOW_US = 1_900_000_000_000_000


class Place(Struct, frozen=True, eq=False):
    """A database with two tenants, a role for each, and one for neither."""

    url: str
    owner: Connection
    database: Database
    connect: Connect
    callers: dict[str, Caller]
    roles: dict[str, str]

    @property
    def store(self) -> PostgresStore:
        return PostgresStore(self.database)

    async def application(self, tenant: str = "acme") -> Connection:
        return await self.connect(self.url, role=self.roles[tenant], search_path="public")

    async def read(self, job_id: UUID, tenant: str = "acme") -> Job | Draft:
        return await self.store.jobs.read(self.callers[tenant], job_id)

    async def plan_all(self) -> None:
        """What a shard does on a hint."""
        lease = await self.store.leases.join(uuid4(), 5_000_000)
        await self.store.leases.acquire(lease, ALL)
        await plan_all(self.store, lease)
        await self.store.leases.leave(lease)


async def plan_all(store: PostgresStore, lease: Lease) -> None:
    entries = await store.plans.list_unplanned(ALL, 1_000)
    drafts = [(entry.number, entry.draft) for entry in entries if entry.draft]
    plans = [
        Plan(number=number, draft=draft, registration=judge_draft(draft, NO_EXCEPTIONS))
        for number, draft in drafts
    ]
    await store.plans.plan(lease, plans)
    await store.plans.clear(lease, [entry.number for entry in entries if not entry.draft])


@pytest.fixture
async def place(database: str, connect: Connect) -> Any:
    owner = await connect(database)
    async with await Database.open(StoreConfig(url=database, role="owner")) as opened:
        callers: dict[str, Caller] = {}
        roles = {name: f"{name}_{uuid4().hex}" for name in ("acme", "globex", "stranger")}
        for name, role in roles.items():
            await owner.execute(f"CREATE ROLE {role}")
            if name != "stranger":
                callers[name] = Caller(uuid4(), "test")
                tenant = Tenant(tenant_id=callers[name].tenant_id, name=name, created_at_us=NOW_US)
                await PostgresStore(opened).tenants.create("test", tenant)
                await Grants(opened).grant("test", tenant.tenant_id, role)
        yield Place(database, owner, opened, connect, callers, roles)


async def schedule(application: Connection, name: str = "remind", **changes: object) -> UUID:
    """Calls with arguments by their names."""
    arguments: dict[str, object] = {"name": name, "schedule": "0 9 * * 1", "url": URL} | changes
    named = ", ".join(f"{key} => ${number}" for number, key in enumerate(arguments, 1))
    values = [
        json.dumps(value) if key in ("payload", "options") else value
        for key, value in arguments.items()
    ]
    job_id: UUID = await application.fetchval(f"SELECT wheelsched.schedule({named})", *values)
    return job_id


async def test_a_job_exists_if_and_only_if_the_transaction_commits(place: Place) -> None:
    application = await place.application()
    transaction = application.transaction()
    await transaction.start()
    await schedule(application)
    await transaction.rollback()
    caller = place.callers["acme"]
    assert await place.store.jobs.list_jobs(caller, JobFilter(), 9) == []
    assert await place.store.plans.list_unplanned(ALL, 9) == []
    async with application.transaction():
        job_id = await schedule(application)
        assert await place.store.jobs.list_jobs(caller, JobFilter(), 9) == []
    (job,) = await place.store.jobs.list_jobs(caller, JobFilter(), 9)
    assert (job.job_id, job.state) == (job_id, JobState.UNPLANNED)


async def test_a_cancellation_holds_if_and_only_if_the_transaction_commits(place: Place) -> None:
    application = await place.application()
    job_id = await schedule(application)
    await place.plan_all()
    transaction = application.transaction()
    await transaction.start()
    assert await application.fetchval("SELECT wheelsched.cancel('remind')") is True
    await transaction.rollback()
    assert (await place.read(job_id)).state is JobState.ACTIVE
    assert await application.fetchval("SELECT wheelsched.cancel($1::uuid)", job_id) is True
    assert await application.fetchval("SELECT wheelsched.cancel($1)", "remind") is None
    await place.plan_all()
    assert await place.owner.fetchval("SELECT count(*) FROM timers") == 0
    assert await place.owner.fetchval("SELECT jobs FROM job_counts") == 0


async def test_everything_that_was_written_is_in_the_job(place: Place) -> None:
    application = await place.application()
    options = {
        "target": {"method": "PUT", "headers": {"x-team": "a"}},
        "retry": {"max_attempts": 7},
        "overlap": {"policy": "queue"},
        "misfire": {"grace": "90s"},
        "timeout": "5s",
        "jitter": "1s",
        "priority": 3,
        "dst": {"gap": "skip"},
        "idempotency_key": "{{job_id}}-{{scheduled_at_unix}}",
        "tags": {"team": "a"},
    }
    arguments: dict[str, Any] = {
        "payload": {"order": 7},
        "timezone": "America/New_York",
        "options": options,
    }
    job_id = await schedule(application, **arguments)
    await place.plan_all()
    job = await place.read(job_id)
    assert isinstance(job, Job)
    assert (job.target.url, job.target.method) == (URL, "PUT")
    assert job.target.headers == {"x-team": "a"}
    assert json.loads(bytes(job.payload)) == {"order": 7}
    assert (job.spec.timezone, job.spec.dst_gap) == ("America/New_York", "skip")
    assert (job.retry.max_attempts, job.timeout_us, job.priority) == (7, 5_000_000, 3)
    assert job.tags == {"team": "a"}


async def test_what_the_database_reads_and_nobody_else_hides_no_job(place: Place) -> None:
    """JSON that is nested deeper than ours goes is fine for Postgres."""
    application = await place.application()
    deep = "[" * 3_000 + "]" * 3_000
    await application.execute("SELECT wheelsched.schedule('deep', '@daily', $1, $2)", URL, deep)
    await schedule(application)
    found = await place.store.jobs.list_jobs(place.callers["acme"], JobFilter(), 9)
    assert [job_answer(job, NOW_US).name for job in found] == ["deep", "remind"]


async def test_every_field_of_a_document_is_an_argument_or_an_option(place: Place) -> None:
    application = await place.application()
    for field in JobDocument.__struct_fields__:
        if field not in ("name", "schedule", "timezone", "payload"):
            await schedule(application, field, options={field: {} if field == "target" else None})


@pytest.mark.parametrize(
    "written",
    [
        '{"cron": "0 9 * * 1", "end": "2100-01-01", "exclude": ["2030-12-25"]}',
        "every 5m",
        "RRULE:FREQ=DAILY;BYHOUR=9",
        "@daily",
        "2100-01-01T09:00:00+02:00",
        "2100-01-01T09:00",
    ],
)
async def test_every_kind_of_schedule_can_be_written(place: Place, written: str) -> None:
    job_id = await schedule(await place.application(), schedule=written, timezone="Asia/Tokyo")
    await place.plan_all()
    assert (await place.read(job_id)).state is JobState.ACTIVE


async def test_a_moment_is_kept_to_the_millisecond(place: Place) -> None:
    application = await place.application()
    at_us = NOW_US + 123_999
    job_id = await application.fetchval(
        "SELECT wheelsched.schedule_at('once', $1, $2, payload => '[1]')", at_us, URL
    )
    carried = await place.owner.fetchval("SELECT due_at FROM unplanned")
    assert carried == NOW_US + 123_000
    await place.plan_all()
    assert await place.owner.fetchval("SELECT due_at FROM timers") == NOW_US + 123_000
    assert (await place.read(job_id)).state is JobState.ACTIVE


async def test_what_is_due_first_is_planned_first(place: Place) -> None:
    application = await place.application()
    names = {"cron": "* * * * *", "late": "2100-01-02T00:00:00Z", "soon": "2100-01-01T00:00:00Z"}
    for name, written in names.items():
        await schedule(application, name, schedule=written)
    entries = await place.store.plans.list_unplanned(ALL, 9)
    assert [entry.draft.name for entry in entries if entry.draft] == ["soon", "late", "cron"]


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


async def test_a_name_that_is_taken_is_refused_kept_or_replaced(place: Place) -> None:
    application = await place.application()
    first = await schedule(application)
    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        await schedule(application)
    assert "the tenant has a job named 'remind' already" in str(caught.value)
    assert str(first) in str(caught.value.detail)
    assert "replace" in str(caught.value.hint)
    assert await schedule(application, if_exists="keep") == first
    await place.plan_all()
    second = await schedule(application, schedule="@hourly", if_exists="replace")
    assert second != first
    await place.plan_all()
    assert (await place.read(second)).state is JobState.ACTIVE
    timers = await place.owner.fetch("SELECT job_id FROM timers")
    assert [row["job_id"] for row in timers] == [second]
    assert await place.owner.fetchval("SELECT jobs FROM job_counts") == 1
    with pytest.raises(asyncpg.InvalidParameterValueError, match="error, keep or replace"):
        await schedule(application, if_exists="perhaps")


async def test_a_job_is_moved_by_cancelling_and_scheduling_it_in_one_transaction(
    place: Place,
) -> None:
    application = await place.application()
    await schedule(application)
    await place.plan_all()
    async with application.transaction():
        assert await application.fetchval("SELECT wheelsched.cancel('remind')") is True
        moved = await schedule(application, schedule="@hourly")
    await place.plan_all()
    caller = place.callers["acme"]
    assert [job.job_id for job in await place.store.jobs.list_jobs(caller, JobFilter(), 9)] == [
        moved
    ]


async def test_two_who_schedule_one_name_do_not_both_succeed(place: Place) -> None:
    one, other = await place.application(), await place.application()
    transaction = one.transaction()
    await transaction.start()
    job_id = await schedule(one)
    await other.execute("SET lock_timeout = '100ms'")
    with pytest.raises(asyncpg.LockNotAvailableError):
        await schedule(other)
    await transaction.commit()
    with pytest.raises(asyncpg.UniqueViolationError):
        await schedule(other)
    assert await schedule(other, if_exists="keep") == job_id


async def test_the_quota_is_told_at_once_and_held_when_planning(place: Place) -> None:
    caller = place.callers["acme"]
    tenant = Tenant(tenant_id=caller.tenant_id, name="acme", job_quota=3, created_at_us=NOW_US)
    await place.store.tenants.edit("test", tenant)
    application = await place.application()
    async with application.transaction():
        for number in range(3):
            await schedule(application, f"old {number}")
        with pytest.raises(asyncpg.ConfigurationLimitExceededError, match="as it may have: 3"):
            async with application.transaction():
                await schedule(application, "old 4")
        for number in range(3):
            await application.fetchval("SELECT wheelsched.cancel($1)", f"old {number}")
    for number in range(5):  # each in a transaction of its own, none of which sees the others'
        await schedule(application, f"job {number}")
    await place.plan_all()
    refused = await place.store.jobs.list_jobs(caller, JobFilter(state=JobState.REFUSED), 9)
    assert [job.error for job in refused if isinstance(job, Draft)] == [
        "the tenant has as many jobs as it may have: 3"
    ] * 2
    with pytest.raises(asyncpg.ConfigurationLimitExceededError):
        await schedule(application, "another")
    await schedule(application, "job 0", if_exists="replace")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name: "),
        ({"name": None}, "name: "),
        ({"name": " a"}, "name: "),
        ({"name": "a" * 256}, "name: "),
        ({"name": "a\nb"}, "name: "),
        ({"name": "a\u202eb"}, "name: "),
        ({"schedule": "  "}, "schedule: "),
        ({"schedule": None}, "schedule: "),
        ({"schedule": "*" * 256}, "schedule: "),
        ({"schedule": '{"cron": '}, "schedule: "),
        ({"schedule": "2020-01-01T00:00:00Z"}, "schedule: "),
        ({"url": None}, "url: "),
        ({"url": "file:///etc/passwd"}, "url: "),
        ({"url": "http://a b/"}, "url: "),
        ({"url": "http://a/\r\nx: y"}, "url: "),
        ({"url": "https://example.org/" + "a" * 2048}, "url: "),
        ({"payload": "a" * 262_144}, "payload: "),
        ({"timezone": None}, "timezone: "),
        ({"options": []}, "options: "),
        ({"options": {"target": {"url": URL}}}, "options: "),
        ({"options": {"target": 1}}, "options: "),
        ({"options": {"retries": {}, "name": "b"}}, "options: name, retries is unknown"),
    ],
)
async def test_what_can_be_told_at_once_is(
    place: Place, changes: dict[str, object], message: str
) -> None:
    application = await place.application()
    with pytest.raises(asyncpg.InvalidParameterValueError) as caught:
        await schedule(application, **changes)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    assert await place.owner.fetchval("SELECT count(*) FROM jobs") == 0


@pytest.mark.parametrize(
    "name",
    ["'); DROP TABLE jobs; --", "$$; SELECT 1", "%L %s %I", '"; {"', "<script>", "名前 \\u0041"],
)
async def test_names_are_text_and_nothing_else(place: Place, name: str) -> None:
    application = await place.application()
    job_id = await schedule(application, name, payload={name: name})
    await place.plan_all()
    job = await place.read(job_id)
    assert isinstance(job, Job)
    assert (job.name, json.loads(bytes(job.payload))) == (name, {name: name})
    assert await application.fetchval("SELECT wheelsched.cancel($1)", name) is True


async def test_nobody_slips_things_in_by_the_search_path(place: Place) -> None:
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


async def test_an_open_transaction_holds_nobody_up(place: Place) -> None:
    """However long it lasts: shards and the API go on, with the jobs that it has touched too."""
    application, other = await place.application(), await place.application()
    job_id = await schedule(application, "to cancel", schedule="2100-01-01T00:00:00Z")
    await place.plan_all()
    waiting = await schedule(application, "unplanned")
    store, caller = place.store, place.callers["acme"]
    lease = await store.leases.join(uuid4(), 5_000_000)
    await store.leases.acquire(lease, ALL)
    async with application.transaction():
        await schedule(application, "new")
        assert await application.fetchval("SELECT wheelsched.cancel('to cancel')") is True
        assert await application.fetchval("SELECT wheelsched.cancel('unplanned')") is True
        await schedule(other, "of another")
        job = judge_draft(
            Draft(
                job_id=uuid4(),
                tenant_id=caller.tenant_id,
                name="by REST",
                document=Raw(
                    b'{"name": "by REST", "schedule": "@daily", "target": {"url": "http://a.b/"}}'
                ),
                created_at_us=NOW_US,
                updated_at_us=NOW_US,
            ),
            NO_EXCEPTIONS,
        )
        assert await store.jobs.register(caller, [Registration(job.job, job.due_us)]) == set()
        await plan_all(store, lease)
        await store.timers.finish(lease, [job_id])
        await store.timers.pause_gone(lease, {job_id: 2})
        listed = await store.plans.list_unplanned(ALL, 9)
        assert [entry.job_id for entry in listed] == [waiting]  # passed by: it is locked
    await plan_all(store, lease)
    names = [job.name for job in await store.jobs.list_jobs(caller, JobFilter(), 9)]
    assert names == ["by REST", "new", "of another"]
    assert await place.owner.fetchval("SELECT jobs FROM job_counts") == 3


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


async def test_what_was_refused_is_forgotten_after_a_week(place: Place) -> None:
    job_id = await schedule(await place.application())
    (entry,) = await place.store.plans.list_unplanned(ALL, 9)
    assert entry.draft is not None
    lease = await place.store.leases.join(uuid4(), 5_000_000)
    await place.store.leases.acquire(lease, ALL)
    plan = Plan(number=entry.number, draft=entry.draft, error="wrong")
    await place.store.plans.plan(lease, [plan])
    await Retention(place.database).drop_old_days()
    assert (await place.read(job_id)).state is JobState.REFUSED
    await place.owner.execute("UPDATE jobs SET updated_at = now() - interval '8 days'")
    await Retention(place.database).drop_old_days()
    assert await place.owner.fetchval("SELECT count(*) FROM jobs") == 0


async def test_a_database_with_jobs_is_migrated(
    empty_database: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From before there were drafts."""
    connection = await connect(empty_database)
    known = known_migrations()
    monkeypatch.setattr("wheelsched.store.migrate.known_migrations", lambda: known[:5])
    assert [migration.number for migration in await migrate(connection)] == [1, 2, 3, 4, 5]
    tenant_id, job_id = uuid4(), uuid4()
    await connection.execute("INSERT INTO tenants (tenant_id, name) VALUES ($1, 'a')", tenant_id)
    await connection.execute(
        "INSERT INTO jobs VALUES ($1, $2, 0, 'job', 'paused', 1, '{}', '{}', $3, $3)",
        job_id,
        tenant_id,
        NOW_US,
    )
    monkeypatch.undo()
    assert 6 in [migration.number for migration in await migrate(connection)]
    row = await connection.fetchrow("SELECT state, error FROM jobs WHERE job_id = $1", job_id)
    assert row is not None
    assert tuple(row) == ("paused", None)
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute("UPDATE jobs SET state = 'nonsense'")
