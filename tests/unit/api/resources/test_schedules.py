from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from tests.api import Api, document
from tests.unit.api.resources.test_runs import HOUR_US, armed

from wheelsched.api.resources.schedules import MAX_RUNS_SEARCHED
from wheelsched.core.model import Run, RunState, SkipReason
from wheelsched.wire.instant import instant

SECOND_US = 1_000_000


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
async def test_invalid_counts_are_rejected(api: Api, count: str) -> None:
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


async def test_every_schedule_that_is_accepted_has_a_preview(api: Api) -> None:
    for schedule in ("*/20,5 * * * *", "0 */6,3 * * *", "20 3,*/12 * * *", "RRULE:FREQ=DAILY"):
        assert (await api.post("/preview", document(schedule=schedule))).body["words"]


async def test_a_preview_warns_of_dialects(api: Api) -> None:
    preview = await api.post("/preview", document(schedule="0 0 */2 * 1", timezone="UTC"))
    assert ["Kubernetes" in warning for warning in preview.body["warnings"]] == [True]


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
    assert (verdict, detail) == ("fired", "the run fired, and attempt 1 succeeded")


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
async def test_invalid_times_are_rejected(api: Api, query: str) -> None:
    job = await api.create()
    refused = await api.get(f"/jobs/{job['job_id']}/explain{query}")
    assert (refused.status, refused.pointers) == (400, ["/at"])


def ran(job_id: str, due_us: int, **changes: object) -> Run:
    fields: dict[str, object] = {
        "job_id": UUID(job_id),
        "due_us": due_us,
        "tenant_id": UUID(int=0),
        "state": RunState.SUCCEEDED,
        "attempt": 1,
    }
    return Run(**(fields | changes))  # type: ignore[arg-type]


async def tell(api: Api, monkeypatch: pytest.MonkeyPatch, runs: list[Run]) -> None:
    """Replaces the history with these runs, earliest first."""

    async def list_runs(_: object, __: object, limit: int) -> list[Run]:
        return runs[::-1][:limit]

    async def list_runs_from(_: object, __: object, limit: int, from_us: int) -> list[Run]:
        return [run for run in runs if run.due_us >= from_us][:limit]

    monkeypatch.setattr(api.stores.history, "list_runs", list_runs)
    monkeypatch.setattr(api.stores.history, "list_runs_from", list_runs_from)


async def test_a_run_is_found_in_a_long_history(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job due every second has a day of later runs, and a skipped run that covers many."""
    job_id = (await api.create(schedule="every 1s"))["job_id"]
    first_us = api.now_us // SECOND_US * SECOND_US + SECOND_US
    dues_us = [first_us + number * SECOND_US for number in range(5_000)]
    summary = ran(
        job_id,
        dues_us[300],
        state=RunState.SKIPPED,
        attempt=0,
        skip_reason=SkipReason.SUPERSEDED,
        missed_since_us=dues_us[100],
        missed_count=201,
    )
    runs = [ran(job_id, due_us) for due_us in dues_us]
    backfill = ran(job_id, dues_us[-1] + 500, backfill_of_us=first_us - SECOND_US)
    await tell(api, monkeypatch, [*runs[:100], summary, *runs[301:], backfill])
    assert (await explained(api, job_id, instant(dues_us[7])))[0] == "fired"
    assert (await explained(api, job_id, instant(dues_us[150])))[0] == "skipped"
    assert (await explained(api, job_id, instant(first_us - SECOND_US)))[0] == "fired"


async def test_an_incomplete_search_is_mentioned(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = (await api.create(schedule="every 1s"))["job_id"]
    at_us = api.now_us // SECOND_US * SECOND_US + SECOND_US
    for count, is_whole in ((2 * MAX_RUNS_SEARCHED - 1, True), (2 * MAX_RUNS_SEARCHED, False)):
        later = [ran(job_id, at_us + number) for number in range(1, count + 1)]
        await tell(api, monkeypatch, later)
        _, detail = await explained(api, job_id, instant(at_us))
        assert ("only the first and the latest" in detail) is not is_whole
