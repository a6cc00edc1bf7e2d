from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.api import Api

from wheelsched.core.model import RunState, SkipReason, parse_run_id
from wheelsched.testing import MemoryStore

NOW = datetime.now(UTC).replace(microsecond=0)


def hours_ago(hours: float) -> str:
    return (NOW - timedelta(hours=hours)).isoformat()


async def test_a_job_is_resumed_from_now(api: Api) -> None:
    job = await api.create(schedule="* * * * *")
    paused = await api.post(f"/jobs/{job['job_id']}/pause")
    assert (paused.body["state"], paused.body["next_run_at"]) == ("paused", None)
    assert paused.body["paused_at"] is not None
    resumed = await api.post(f"/jobs/{job['job_id']}/resume")
    assert (resumed.body["state"], resumed.body["paused_at"]) == ("active", None)
    assert resumed.body["next_run_at"] is not None


async def test_a_job_is_resumed_from_when_it_was_paused(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await api.create(schedule="every 1s")
    await api.post(f"/jobs/{job['job_id']}/pause")
    paused_at_us = (await api.job(job["job_id"])).paused_at_us
    resumed_from: list[int] = []
    resume = api.stores.jobs.resume

    async def note(caller: Any, job_id: Any, due_us: int | None, *more: Any) -> Any:
        resumed_from.append(due_us or 0)
        return await resume(caller, job_id, due_us, *more)

    monkeypatch.setattr(api.stores.jobs, "resume", note)
    await api.post(f"/jobs/{job['job_id']}/resume", {"from": "paused_at"})
    assert paused_at_us is not None
    assert 0 < resumed_from[0] - paused_at_us <= 1_000_000
    refused = await api.post(f"/jobs/{job['job_id']}/resume", {"from": "yesterday"})
    assert (refused.status, refused.pointers) == (422, ["/from"])


async def pause_back_then(api: Api, job_id: str, seconds: int) -> None:
    """Pauses a job, backdated."""
    await api.post(f"/jobs/{job_id}/pause")
    job = await api.job(job_id)
    assert isinstance(api.stores, MemoryStore)
    assert job.paused_at_us is not None
    earlier = replace(
        job,
        anchor_us=job.anchor_us - 2 * seconds * 1_000_000,
        created_at_us=job.created_at_us - 2 * seconds * 1_000_000,
        paused_at_us=job.paused_at_us - seconds * 1_000_000,
    )
    api.stores._tables.jobs[job.job_id] = earlier
    api.stores._tables.runs.clear()  # a second may have passed since the job was made


async def test_due_times_skipped_by_a_pause_are_counted_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer was half a minute overdue when the job was paused a minute ago."""
    job_id = UUID((await api.create(schedule="* * * * * *", timezone="UTC"))["job_id"])
    assert isinstance(api.stores, MemoryStore)
    tables = api.stores._tables
    paused_at_us = tables.now_us() - 60_000_000
    first_us = paused_at_us // 1_000_000 * 1_000_000 - 30_000_000
    tables.jobs[job_id] = replace(tables.jobs[job_id], anchor_us=first_us - 1)
    tables.timers[job_id].due_us = first_us
    with monkeypatch.context() as back_then:
        back_then.setattr(tables, "now_us", lambda: paused_at_us)
        await api.post(f"/jobs/{job_id}/pause")
    await api.post(f"/jobs/{job_id}/resume")
    left, paused_over = sorted((row.run for row in tables.runs.values()), key=lambda run: run.key)
    assert (left.missed_since_us, left.missed_count) == (first_us, 31)
    assert left.due_us == first_us + 30_000_000
    assert paused_over.missed_since_us == left.due_us + 1_000_000
    assert paused_over.missed_count == (paused_over.due_us - left.due_us) // 1_000_000
    assert {left.skip_reason, paused_over.skip_reason} == {SkipReason.PAUSED}


async def test_due_times_during_a_pause_are_explained(api: Api) -> None:
    job = await api.create(schedule="* * * * * *", timezone="UTC")
    await pause_back_then(api, job["job_id"], 60)
    await api.post(f"/jobs/{job['job_id']}/resume")
    (run,) = (await api.get(f"/jobs/{job['job_id']}/runs")).body["items"]
    assert (run["state"], run["skip_reason"]) == ("skipped", "paused")
    since, until = (datetime.fromisoformat(run[end]) for end in ("missed_since", "scheduled_at"))
    assert run["missed_count"] == 1 + (until - since).total_seconds() >= 60
    middle = (since + timedelta(seconds=30)).isoformat()
    middle = middle.replace("+00:00", "Z")
    explained = (await api.get(f"/jobs/{job['job_id']}/explain?at={middle}")).body
    assert (explained["verdict"], explained["run"]["run_id"]) == ("skipped", run["run_id"])
    assert "paused" in explained["detail"]


async def test_a_one_off_due_during_a_pause_is_recorded(api: Api) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=120)).replace(microsecond=0)
    job = await api.create(schedule=soon.isoformat())
    await pause_back_then(api, job["job_id"], 60)
    paused = await api.job(job["job_id"])
    assert isinstance(api.stores, MemoryStore)
    gone = (datetime.now(UTC) - timedelta(seconds=30)).replace(microsecond=0)
    api.stores._tables.jobs[paused.job_id] = replace(
        paused, spec=replace(paused.spec, expression=gone.isoformat())
    )
    resumed = await api.post(f"/jobs/{job['job_id']}/resume")
    assert resumed.body["state"] == "finished"
    (run,) = (await api.get(f"/jobs/{job['job_id']}/runs")).body["items"]
    assert (run["skip_reason"], run["missed_count"]) == ("paused", 1)


async def test_due_times_caught_up_after_a_pause_are_not_skipped(api: Api) -> None:
    job = await api.create(schedule="* * * * * *", timezone="UTC")
    await pause_back_then(api, job["job_id"], 60)
    await api.post(f"/jobs/{job['job_id']}/resume", {"from": "paused_at"})
    assert (await api.get(f"/jobs/{job['job_id']}/runs")).body["items"] == []


async def test_a_job_edited_while_resuming_follows_its_new_schedule(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await api.create(schedule="0 0 1 1 *")
    await api.post(f"/jobs/{job['job_id']}/pause")
    resume = api.stores.jobs.resume

    async def edit_first(*given: Any) -> Any:
        monkeypatch.setattr(api.stores.jobs, "resume", resume)
        edited = await api.call("PATCH", f"/jobs/{job['job_id']}", {"schedule": "0 0 1 6 *"})
        assert edited.status == 200
        return await resume(*given)

    monkeypatch.setattr(api.stores.jobs, "resume", edit_first)
    resumed = await api.post(f"/jobs/{job['job_id']}/resume")
    ((_, due_us, _),) = await api.shard.timers.load(range(256), api.now_us + 10**14)
    assert (resumed.status, resumed.body["schedule"]) == (200, "0 0 1 6 *")
    assert datetime.fromtimestamp(due_us / 1_000_000, UTC).month in (5, 6)


async def test_a_change_that_comes_too_late_for_a_run_says_so(api: Api) -> None:
    job = await api.create(schedule="every 1s")
    lease = await api.own_all()
    (horizon,) = [await api.shard.timers.load(range(256), api.now_us + 10**9)]
    ((_, due_us, _),) = list(horizon)
    key = await api.arm(lease, job["job_id"], due_us, due_us + 10**9)
    paused = await api.post(f"/jobs/{job['job_id']}/pause")
    run = await api.run(key)
    assert paused.body["too_late"] == ([run.run_id] if run.state is RunState.ARMED else [])


async def test_a_trigger_adds_a_run_to_the_schedule(api: Api) -> None:
    job = await api.create()
    before = await api.get(f"/jobs/{job['job_id']}/next")
    triggered = await api.post(f"/jobs/{job['job_id']}/trigger")
    assert (triggered.status, triggered.body["count"]) == (202, 1)
    run = await api.get(f"/runs/{triggered.body['run_ids'][0]}")
    assert (run.body["trigger"], run.body["state"]) == ("manual", "retrying")
    assert (await api.get(f"/jobs/{job['job_id']}/next")).body == before.body


async def test_a_backfill_preview_only_counts(api: Api) -> None:
    job = await api.create(schedule="0 * * * *", timezone="UTC")
    path = f"/jobs/{job['job_id']}/backfill"
    asked = {"since": hours_ago(5), "until": hours_ago(0)}
    preview = await api.post(path, asked | {"preview": True})
    assert preview.body == {"count": 5, "run_ids": [], "preview": True}
    assert (await api.get(f"/jobs/{job['job_id']}/runs")).body["items"] == []
    made = await api.post(path, asked)
    assert (made.status, made.body["count"]) == (202, 5)
    runs = (await api.get(f"/jobs/{job['job_id']}/runs")).body["items"]
    assert [run["trigger"] for run in runs] == ["backfill"] * 5
    assert all(run["scheduled_at"].endswith(":00:00Z") for run in runs)


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ({"since": hours_ago(1), "until": hours_ago(2)}, "/until"),
        ({"since": hours_ago(1), "until": hours_ago(2), "preview": True}, "/until"),
        ({"since": hours_ago(1), "until": hours_ago(-48)}, "/until"),
        ({"since": hours_ago(1), "until": hours_ago(-48), "preview": True}, "/until"),
        ({"since": hours_ago(24 * 365), "until": hours_ago(0)}, "/until"),
        ({"since": "1066-10-14T00:00:00Z", "until": hours_ago(0)}, "/since"),
        ({"since": "2026-11-16T00:00:00", "until": hours_ago(0)}, "/since"),
        ({"since": "yesterday", "until": hours_ago(0)}, "/since"),
        ({"until": hours_ago(0)}, "/since"),
    ],
)
async def test_invalid_backfills_are_rejected(
    api: Api, asked: dict[str, Any], pointer: str
) -> None:
    job = await api.create(schedule="* * * * *")
    refused = await api.post(f"/jobs/{job['job_id']}/backfill", asked)
    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_a_run_is_triggered_with_a_payload_of_its_own(api: Api) -> None:
    job = await api.create(payload="job")
    path = f"/jobs/{job['job_id']}/trigger"
    bodies = [b'{"payload": { "a" : 1 }}', b'{"payload": null}', b"{}", b""]
    payloads = []
    for body in bodies:
        answer = await api.post(path, body or None)
        assert answer.status == 202
        key = parse_run_id(answer.body["run_ids"][0])
        found = await api.shard.timers.read_payloads([key])
        payloads.append(bytes(found[key]) if key in found else None)
    assert payloads == [b'{ "a" : 1 }', b"null", None, None]


async def test_a_trigger_payload_has_the_limits_of_a_job_payload(api: Api) -> None:
    job = await api.create()
    path = f"/jobs/{job['job_id']}/trigger"
    large = await api.post(path, {"payload": "x" * 262_143})
    assert (large.status, large.pointers) == (422, ["/payload"])
    assert (await api.post(path, {"payloads": 1})).pointers == ["/payloads"]
    assert (await api.get(f"/jobs/{job['job_id']}/runs")).body["items"] == []
