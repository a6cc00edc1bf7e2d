"""Jobs that are declared in code, and what was registered before."""

from typing import NoReturn
from uuid import UUID

import pytest
import structlog
from structlog.testing import capture_logs

from wheelsched.core.model import Draft, Job, JobState
from wheelsched.errors import StoreUnavailable
from wheelsched.ports import Caller, JobFilter, Tenant
from wheelsched.scheduler.config import SchedulerConfig, Undeclared
from wheelsched.scheduler.declared_jobs import DeclaredJobs
from wheelsched.scheduler.documents import JobOptions
from wheelsched.scheduler.job_book import JobBook
from wheelsched.scheduler.tasks import DeclaredJob, Tasks
from wheelsched.testing import MemoryStore
from wheelsched.values.duration import HOUR, SECOND

TENANT = Caller(UUID(int=1), "test")


class Database:
    """A store, and the services that start on it."""

    def __init__(self) -> None:
        self.now_us = 1_800_000_000 * SECOND
        self.store = MemoryStore(lambda: self.now_us)
        self.book = JobBook(self.store.jobs, TENANT, lambda: self.now_us)

    async def start(
        self,
        declared: dict[str, str],
        *,
        undeclared: Undeclared = "report",
        release: int = 0,
        application: str = "shop",
        **options: object,
    ) -> None:
        """Starts an instance that declares these jobs."""
        config = SchedulerConfig(application=application, undeclared=undeclared, release=release)
        tasks = Tasks(application)
        for name, schedule in declared.items():
            job = DeclaredJob(name=name, schedule=schedule, options=JobOptions(**options))  # type: ignore[typeddict-item]
            tasks.declare(job, lambda: None)
        await DeclaredJobs(self.book, tasks, config).sync()

    async def jobs(self) -> dict[str, Job]:
        found = await self.store.jobs.list_jobs(TENANT, JobFilter(), 100)
        return {job.name: job for job in found if isinstance(job, Job)}

    async def job(self, name: str) -> Job:
        return (await self.jobs())[name]


@pytest.fixture
async def database() -> Database:
    structlog.reset_defaults()
    database = Database()
    tenant = Tenant(tenant_id=TENANT.tenant_id, name="test", created_at_us=database.now_us)
    await database.store.tenants.create("test", tenant)
    return database


async def test_a_declared_job_is_registered_under_the_name_of_its_application(
    database: Database,
) -> None:
    await database.start({"report": "0 9 * * 1"}, timezone="Europe/Paris", tags={"team": "a"})
    job = await database.job("shop:report")
    assert job.spec.timezone == "Europe/Paris"
    assert job.tags == {"application": "shop", "declared": "true", "release": "0", "team": "a"}


async def test_the_next_instance_changes_nothing(database: Database) -> None:
    await database.start({"report": "every 1h"})
    before = await database.job("shop:report")
    database.now_us += HOUR
    await database.start({"report": "every 1h"})
    assert await database.job("shop:report") == before


async def test_what_was_changed_in_code_is_edited(database: Database) -> None:
    await database.start({"report": "every 1h"})
    before = await database.job("shop:report")
    database.now_us += HOUR
    await database.start({"report": "every 1h"}, retry={"max_attempts": 9})
    edited = await database.job("shop:report")
    assert (edited.job_id, edited.version) == (before.job_id, before.version + 1)
    assert edited.retry.max_attempts == 9
    assert edited.anchor_us == before.anchor_us  # its due times stay
    await database.start({"report": "every 2h"})
    assert (await database.job("shop:report")).spec.expression == "2h"


async def test_undeclared_jobs_are_reported(database: Database) -> None:
    await database.start({"old": "every 1h", "report": "every 1h"})
    with capture_logs() as logs:
        await database.start({"report": "every 1h"})
    assert [(each["event"], each["job"]) for each in logs] == [("job.undeclared", "shop:old")]
    assert (await database.job("shop:old")).state is JobState.ACTIVE


async def test_undeclared_jobs_are_deleted(database: Database) -> None:
    await database.start({"old": "every 1h", "report": "every 1h"})
    await database.start({"report": "every 1h"}, undeclared="delete")
    assert list(await database.jobs()) == ["shop:report"]


async def test_undeclared_jobs_are_paused_until_they_are_declared_again(
    database: Database,
) -> None:
    await database.start({"old": "every 1h"})
    await database.start({}, undeclared="pause")
    assert (await database.job("shop:old")).state is JobState.PAUSED
    await database.start({}, undeclared="pause")
    database.now_us += 5 * HOUR
    await database.start({"old": "every 1h"}, undeclared="pause")
    job = await database.job("shop:old")
    assert job.state is JobState.ACTIVE
    assert "undeclared" not in job.tags


@pytest.mark.parametrize("statement", ["edit", "resume"])
async def test_an_instance_that_dies_while_it_resumes_a_job_is_not_the_last(
    database: Database, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    await database.start({"old": "every 1h"})
    await database.start({}, undeclared="pause")

    async def die(*_: object, **options: object) -> NoReturn:
        raise StoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(database.store.jobs, statement, die)
        with pytest.raises(StoreUnavailable):
            await database.start({"old": "every 2h"})
    await database.start({"old": "every 2h"})
    job = await database.job("shop:old")
    assert (job.state, job.spec.expression) == (JobState.ACTIVE, "2h")
    assert "undeclared" not in job.tags


async def test_a_job_that_goes_while_an_instance_starts_is_registered(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.start({"report": "every 1h"})
    find = database.book.find

    async def delete_first(name: str) -> Job | Draft | None:
        monkeypatch.undo()
        job = await database.job(name)
        await database.store.jobs.delete(TENANT, job.job_id)
        return await find(name)

    monkeypatch.setattr(database.book, "find", delete_first)
    await database.start({"report": "every 1h"})
    assert (await database.job("shop:report")).state is JobState.ACTIVE


async def test_a_job_that_an_operator_paused_stays_paused(database: Database) -> None:
    await database.start({"report": "every 1h"})
    job = await database.job("shop:report")
    await database.store.jobs.pause(TENANT, job.job_id)
    await database.start({"report": "every 2h"})
    job = await database.job("shop:report")
    assert (job.state, job.spec.expression) == (JobState.PAUSED, "2h")


async def test_jobs_of_others_are_left_alone(database: Database) -> None:
    await database.start({"report": "every 1h"}, application="billing")
    await database.book.register(
        {"name": "shop:remind", "schedule": "every 1h", "target": {"queue": "q"}}
    )
    await database.start({}, undeclared="delete")
    assert sorted(await database.jobs()) == ["billing:report", "shop:remind"]


async def test_an_older_release_leaves_the_jobs_of_a_newer_one_alone(database: Database) -> None:
    """An instance with old code may restart in the middle of a deployment."""
    await database.start({"report": "every 2h", "new": "every 1h"}, release=2)
    await database.start({"report": "every 1h"}, release=1, undeclared="delete")
    jobs = await database.jobs()
    assert jobs["shop:report"].spec.expression == "2h"
    assert "shop:new" in jobs
    await database.start({"report": "every 3h"}, release=3, undeclared="delete")
    assert (await database.job("shop:report")).spec.expression == "3h"
    assert "shop:new" not in await database.jobs()


async def test_a_schedule_that_has_ended_does_not_prevent_a_start(database: Database) -> None:
    with capture_logs() as logs:
        await database.start({"past": "2020-01-01T00:00:00Z", "report": "every 1h"})
    assert logs[0]["event"] == "job.ended"
    assert list(await database.jobs()) == ["shop:report"]
