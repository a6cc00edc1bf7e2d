from datetime import UTC, datetime, timedelta

import pytest
from tests.api import Api, document
from tests.unit.api.test_runs import HOUR_US, armed

from wheelsched.core.model import RunState, SkipReason
from wheelsched.wire.instant import instant


async def test_coming_times_are_in_utc_and_local(api: Api) -> None:
    job = await api.create(schedule="0 9 * * *", timezone="America/New_York")
    coming = await api.get(f"/jobs/{job['job_id']}/next?count=3")
    assert coming.body["timezone"] == "America/New_York"
    assert len(coming.body["items"]) == 3
    assert all("T09:00:00-" in due["local"] for due in coming.body["items"])
    assert all(due["utc"].endswith("Z") for due in coming.body["items"])


async def test_a_one_off_has_one_coming_time(api: Api) -> None:
    job = await api.create(schedule="2030-01-01T00:00:00Z")
    coming = await api.get(f"/jobs/{job['job_id']}/next")
    assert [due["utc"] for due in coming.body["items"]] == ["2030-01-01T00:00:00Z"]


@pytest.mark.parametrize("count", ["0", "1001", "x"])
async def test_counts_that_are_none(api: Api, count: str) -> None:
    job = await api.create()
    refused = await api.get(f"/jobs/{job['job_id']}/next?count={count}")
    assert (refused.status, refused.pointers) == (400, ["/count"])


async def test_a_preview_writes_nothing(api: Api) -> None:
    preview = await api.post("/preview", document(schedule="30 2 * * *"))
    assert preview.status == 200
    assert preview.body["words"]
    assert len(preview.body["next_times"]) == 10
    assert any("clocks go forward" in warning for warning in preview.body["warnings"])
    assert (await api.get("/jobs")).body["items"] == []


async def explained(api: Api, job_id: object, at: datetime) -> tuple[str, str]:
    written = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    answer = await api.get(f"/jobs/{job_id}/explain?at={written}")
    assert answer.status == 200, answer.body
    return answer.body["verdict"], answer.body["detail"]


async def test_why_it_fired(api: Api) -> None:
    key = await armed(api)
    assert (await explained(api, key.job_id, instant(key.due_us)))[0] == "waiting"
    await api.settle(key, RunState.SUCCEEDED, http_status=200)
    verdict, detail = await explained(api, key.job_id, instant(key.due_us))
    assert (verdict, detail) == ("fired", "it fired, and attempt 1 succeeded")


async def test_why_it_was_skipped(api: Api) -> None:
    key = await armed(api)
    await api.settle(key, RunState.SKIPPED, skip_reason=SkipReason.OVERLAP)
    verdict, detail = await explained(api, key.job_id, instant(key.due_us))
    assert verdict == "skipped"
    assert "an earlier run of the job was unfinished" in detail


async def test_why_it_did_not_fire(api: Api) -> None:
    job = await api.create(schedule="0 * * * *", timezone="UTC")
    job_id = job["job_id"]
    hour = instant(api.now_us // HOUR_US * HOUR_US + HOUR_US)
    assert (await explained(api, job_id, hour))[0] == "not_yet"
    assert (await explained(api, job_id, hour + timedelta(minutes=5)))[0] == "not_due"
    assert (await explained(api, job_id, hour - timedelta(days=1)))[0] == "not_registered"
    await api.post(f"/jobs/{job_id}/pause")
    assert (await explained(api, job_id, hour))[0] == "paused"
    answer = await api.get(f"/jobs/{job_id}/explain?at={hour.isoformat()[:19]}Z")
    assert answer.body["due_before"] < answer.body["at"] < answer.body["due_after"]


@pytest.mark.parametrize(
    "query", ["", "?at=yesterday", "?at=1066-01-01T00:00:00Z", "?at=2026-01-01"]
)
async def test_times_that_are_none(api: Api, query: str) -> None:
    job = await api.create()
    refused = await api.get(f"/jobs/{job['job_id']}/explain{query}")
    assert (refused.status, refused.pointers) == (400, ["/at"])
