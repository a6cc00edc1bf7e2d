"""The audit entry of each kind of change."""

from uuid import UUID

from msgspec import Raw

from wheelsched.core.audit import MAX_LISTED, asked, changed, registered
from wheelsched.core.model import HttpTarget, Job, RunKey, format_run_id
from wheelsched.schedule.spec import Spec


def job(number: int) -> Job:
    return Job(
        job_id=UUID(int=number),
        tenant_id=UUID(int=0),
        name=f"job {number}",
        schedule=Raw(b'"* * * * *"'),
        spec=Spec(kind="cron", expression="* * * * *"),
        anchor_us=0,
        target=HttpTarget(url="https://example.org/", headers={"authorization": "secret"}),
        payload=Raw(b'"secret"'),
        created_at_us=0,
        updated_at_us=0,
    )


def test_one_job_is_the_subject_and_many_are_counted() -> None:
    assert registered([job(1)]).subject == str(UUID(int=1))
    many = registered([job(number) for number in range(MAX_LISTED)])
    assert (many.subject, many.detail["count"]) == (f"{MAX_LISTED} jobs", MAX_LISTED)
    assert many.detail["names"] == [f"job {number}" for number in range(MAX_LISTED)]
    assert registered([job(number) for number in range(MAX_LISTED + 1)]).detail == {
        "count": MAX_LISTED + 1
    }


def test_a_run_is_named_by_its_id() -> None:
    key = RunKey(UUID(int=1), 7)
    entry = asked("cancel", [key])
    assert (entry.verb, entry.subject) == ("run.cancel", format_run_id(key))


def test_neither_payload_nor_headers_are_logged() -> None:
    entry = changed("edit", job(1), is_rescheduled=True)
    assert entry.verb == "job.edit"
    assert "secret" not in str(entry)
