"""Documents become jobs, or all of their problems are reported."""

import msgspec
import pytest
from tests.unit.jobs.documents import (
    JOB_ID,
    NOW_US,
    TENANT_ID,
    as_document,
    as_json,
    new_parser,
)

from wheelsched.core.model import Job, JobState
from wheelsched.errors import InvalidDocument, InvalidField, PayloadTooLarge
from wheelsched.jobs.parse import MAX_PAYLOAD_BYTES, check_payload

LATER_US = NOW_US + 90_000_000


def registered(**fields: object) -> Job:
    return new_parser().register(as_document(**fields), JOB_ID, TENANT_ID).job


def pointers(error: InvalidDocument) -> list[str]:
    return sorted(each.pointer for each in error.errors)


def test_a_relative_schedule_is_stored_as_its_instant() -> None:
    job = registered(schedule="in 5m")
    assert msgspec.json.decode(job.schedule) == "2026-05-28T20:31:40.000Z"


def test_an_invalid_relative_schedule_is_reported_with_the_other_problems() -> None:
    with pytest.raises(InvalidDocument) as refused:
        registered(schedule="in 5 parsecs", timeout="never")
    assert pointers(refused.value) == ["/schedule", "/timeout"]


def test_an_edit_keeps_the_anchor_of_an_unchanged_schedule() -> None:
    before = registered(schedule="every 5m")
    edit = new_parser(LATER_US).edit(before, as_document(schedule="every 5m", timeout="9s"))
    assert (edit.is_rescheduled, edit.due_us) == (False, None)
    assert (edit.job.anchor_us, edit.job.version) == (before.anchor_us, 2)
    assert (edit.job.timeout_us, edit.job.updated_at_us) == (9_000_000, LATER_US)


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "every 6m"},
        {"schedule": "every 5m", "timezone": "Europe/Berlin"},
        {"schedule": "every 5m", "dst": {"gap": "skip"}},
    ],
)
def test_an_edit_of_the_due_times_is_a_reschedule(fields: dict[str, object]) -> None:
    edit = new_parser(LATER_US).edit(registered(schedule="every 5m"), as_document(**fields))
    assert edit.is_rescheduled
    assert edit.due_us is not None
    assert edit.job.anchor_us == LATER_US


def test_a_schedule_with_a_future_makes_a_finished_job_active() -> None:
    finished = msgspec.structs.replace(registered(), state=JobState.FINISHED)
    edit = new_parser().edit(finished, as_document(schedule="@hourly"))
    assert edit.job.state is JobState.ACTIVE


def test_wrong_types_and_invalid_values_are_reported_together() -> None:
    body = as_json(retry="often", timeout="never", target={"method": "SEND"}, color="red")
    with pytest.raises(InvalidDocument) as refused:
        new_parser().register_json(body, JOB_ID, TENANT_ID)
    assert pointers(refused.value) == [
        *("/color", "/retry", "/target/method", "/target/url", "/timeout")
    ]


def test_a_single_problem_of_type_is_raised_as_it_is() -> None:
    with pytest.raises(InvalidField) as refused:
        new_parser().register_json(as_json(priority="high"), JOB_ID, TENANT_ID)
    assert refused.value.pointer == "/priority"


def test_a_schedule_is_not_called_past_if_its_time_zone_is_unreadable() -> None:
    body = as_json(schedule="2026-05-28T21:00:00", timezone=5)  # past in UTC + 1, not in UTC - 1
    with pytest.raises(InvalidField) as refused:
        new_parser(NOW_US + 86_400_000_000).register_json(body, JOB_ID, TENANT_ID)
    assert refused.value.pointer == "/timezone"


def test_a_payload_of_the_maximum_size_is_accepted_and_one_byte_more_is_not() -> None:
    check_payload(msgspec.Raw(b'"' + b"a" * (MAX_PAYLOAD_BYTES - 2) + b'"'))
    with pytest.raises(PayloadTooLarge, match=r"262,145 bytes; the maximum is 262,144"):
        check_payload(msgspec.Raw(b'"' + b"a" * (MAX_PAYLOAD_BYTES - 1) + b'"'))
