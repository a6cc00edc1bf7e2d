"""Drafts are validated as of the time they were written, and shown whatever is wrong with them."""

import msgspec
import pytest
from msgspec import Raw
from tests.unit.jobs.documents import JOB_ID, NOW_US, TENANT_ID, as_json

from wheelsched.core.model import Draft, JobState
from wheelsched.core.targets.egress import EgressRules
from wheelsched.jobs.drafts import draft_answer, judge_draft
from wheelsched.wire.job import DstDocument, MisfireDocument


def draft(document: bytes) -> Draft:
    return Draft(
        job_id=JOB_ID,
        tenant_id=TENANT_ID,
        name="a",
        document=Raw(document),
        created_at_us=NOW_US,
        updated_at_us=NOW_US,
    )


def test_a_draft_becomes_the_job_that_a_request_would_have_made() -> None:
    registration = judge_draft(draft(as_json(schedule="in 5m")), EgressRules())
    assert registration.due_us == NOW_US + 300_000_000
    assert registration.job.created_at_us == NOW_US


@pytest.mark.parametrize(
    "document",
    [
        b"{}",
        as_json(retry=5, timeout=["a"], tags={"a": 1}, priority="high", dst=None, misfire=[]),
        b'{"payload":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    ],
    ids=["empty", "of wrong types", "nested too deeply"],
)
def test_an_unreadable_field_is_shown_as_its_default(document: bytes) -> None:
    shown = draft_answer(draft(document))
    assert (shown.name, shown.state, shown.version) == ("a", JobState.UNPLANNED, 1)
    assert (shown.timezone, shown.timeout, shown.jitter, shown.priority) == ("UTC", "2m", "0s", 0)
    assert (shown.misfire, shown.dst, shown.tags) == (MisfireDocument(), DstDocument(), {})


def test_a_draft_without_a_schedule_and_a_target_can_be_shown() -> None:
    shown = draft_answer(draft(b"{}"))
    assert (bytes(shown.schedule), shown.target.url) == (b"null", "")
    assert msgspec.json.encode(shown)


def test_credentials_in_the_url_and_in_headers_are_masked() -> None:
    target = {"url": "https://me:s3cret@example.org/", "headers": {"authorization": "s3cret"}}
    shown = draft_answer(draft(as_json(target=target)))
    assert shown.target.url == "https://***@example.org/"
    assert shown.target.headers == {"authorization": "***"}
