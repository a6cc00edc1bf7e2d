"""What an application writes is what its job is, or it is told at once what is wrong."""

import json
from typing import Any

import asyncpg
import pytest
from tests.integration.application.conftest import NOW_US, URL, Place, schedule

from wheelsched.core.model import Draft, HttpTarget, Job, JobState, QueueTarget
from wheelsched.core.targets.egress import NO_EXCEPTIONS
from wheelsched.errors import InvalidDocument
from wheelsched.jobs.describe import job_answer
from wheelsched.jobs.drafts import judge_draft
from wheelsched.ports import JobFilter
from wheelsched.wire.job import JobDocument, TargetDocument


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
    assert job.target == HttpTarget(url=URL, method="PUT", headers={"x-team": "a"})
    assert json.loads(bytes(job.payload)) == {"order": 7}
    assert (job.spec.timezone, job.spec.dst_gap) == ("America/New_York", "skip")
    assert (job.retry.max_attempts, job.timeout_us, job.priority) == (7, 5_000_000, 3)
    assert job.tags == {"team": "a"}


async def test_a_job_for_a_queue_has_no_url(place: Place) -> None:
    application = await place.application()
    options = {"target": {"queue": "billing", "claim_within": "2h"}}
    job_id = await schedule(application, url=None, options=options)
    await application.execute(
        "SELECT wheelsched.schedule_at('once', now() + interval '1 h', options => $1)",
        json.dumps({"target": {"queue": "later"}}),
    )
    shown = job_answer(await place.read(job_id), NOW_US)
    assert shown.target == TargetDocument(queue="billing", claim_within="2h")
    await place.plan_all()
    job = await place.read(job_id)
    assert isinstance(job, Job)
    assert job.target == QueueTarget(queue="billing", claim_within_us=7_200_000_000)
    found = await place.store.jobs.list_jobs(place.callers["acme"], JobFilter(name="once"), 9)
    assert [job.target for job in found if isinstance(job, Job)] == [QueueTarget(queue="later")]


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


async def test_a_moment_is_rounded_up_to_the_millisecond(place: Place) -> None:
    application = await place.application()
    at_us = NOW_US + 123_999
    job_id = await application.fetchval(
        "SELECT wheelsched.schedule_at('once', $1, $2, payload => '[1]')", at_us, URL
    )
    carried = await place.owner.fetchval("SELECT due_at FROM unplanned")
    assert carried == at_us
    await place.plan_all()
    assert await place.owner.fetchval("SELECT due_at FROM timers") == NOW_US + 124_000
    assert (await place.read(job_id)).state is JobState.ACTIVE


@pytest.mark.parametrize(
    "at", ["NULL", "'infinity'", "'-infinity'", "'10000-01-01'", "'0044-03-15 BC'"]
)
async def test_a_moment_that_is_none_is_told_by_its_name(place: Place, at: str) -> None:
    application = await place.application()
    with pytest.raises(asyncpg.InvalidParameterValueError, match=r"^at: .* is not a valid due"):
        await application.execute(f"SELECT wheelsched.schedule_at('once', {at}, '{URL}')")


@pytest.mark.proof
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
        ({"url": None, "options": {"target": {"batch": 2}}}, "url: "),
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
async def test_problems_that_are_known_at_once_are_reported_at_once(
    place: Place, changes: dict[str, object], message: str
) -> None:
    application = await place.application()
    with pytest.raises(asyncpg.InvalidParameterValueError) as caught:
        await schedule(application, **changes)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    assert await place.owner.fetchval("SELECT count(*) FROM jobs") == 0


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_method_that_carries_no_payload_is_refused(place: Place, method: str) -> None:
    job_id = await schedule(await place.application(), options={"target": {"method": method}})
    draft = await place.read(job_id)
    assert isinstance(draft, Draft)
    with pytest.raises(InvalidDocument) as caught:
        judge_draft(draft, NO_EXCEPTIONS)
    assert [problem.pointer for problem in caught.value.errors] == ["/target/method"]


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
