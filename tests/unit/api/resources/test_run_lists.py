"""Runs of all jobs over REST."""

from typing import Any
from urllib.parse import quote

import pytest
from tests.api import Api
from tests.unit.api.resources.test_runs import armed

from wheelsched.core.model import RunState, format_run_id
from wheelsched.wire.instant import instant


async def triggered(api: Api, names: str) -> dict[str, str]:
    """One run of each new job, by job name."""
    runs = {}
    for name in names:
        job = await api.create(name=name)
        runs[name] = (await api.post(f"/jobs/{job['job_id']}/trigger")).body["run_ids"][0]
    return runs


async def listed(api: Api, query: str = "") -> list[tuple[str | None, str]]:
    """The job names and run ids of all pages."""
    found: list[tuple[str | None, str]] = []
    cursor = ""
    while True:
        page = await api.get(f"/runs?limit=2{query}{cursor}")
        assert page.status == 200, page.body
        found += [(run["job_name"], run["run_id"]) for run in page.body["items"]]
        if page.body["next_cursor"] is None:
            return found
        cursor = f"&cursor={page.body['next_cursor']}"


def moment(us: int) -> str:
    return quote(instant(us).isoformat())


async def test_the_runs_of_all_jobs_are_listed_in_pages_with_their_names(api: Api) -> None:
    runs = await triggered(api, "abcde")
    until = moment(api.now_us + 60_000_000)
    assert await listed(api, f"&until={until}") == list(runs.items())[::-1]
    assert await listed(api, f"&until={until}&state=retrying") == list(runs.items())[::-1]
    assert await listed(api, f"&until={until}&state=dead") == []
    assert await listed(api, f"&from={until}&until={until}") == []


async def test_runs_are_narrowed_to_a_job(api: Api) -> None:
    runs = await triggered(api, "ab")
    job_id = (await api.get("/jobs?name=a")).body["items"][0]["job_id"]
    until = moment(api.now_us + 60_000_000)
    assert await listed(api, f"&until={until}&job_id={job_id}") == [("a", runs["a"])]


async def test_a_run_of_a_deleted_job_has_no_name(api: Api) -> None:
    key = await armed(api, state=RunState.DEAD)
    run_id = format_run_id(key)
    until = moment(key.due_us + 1)
    assert await listed(api, f"&state=dead&until={until}") == [("weekly-report", run_id)]
    assert (await api.get("/dead")).body["items"][0]["job_name"] == "weekly-report"
    assert (await api.get(f"/runs/{run_id}")).body["job_name"] == "weekly-report"
    await api.call("DELETE", f"/jobs/{key.job_id}")
    assert await listed(api, f"&state=dead&until={until}") == [(None, run_id)]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("state=done", "/state"),
        ("from=yesterday", "/from"),
        ("from=2026-01-01T00:00:00", "/from"),
        ("from=2026-01-01T00:00:00Z&until=2026-01-08T00:00:01Z", "/from"),
        ("until=2500-01-01T00:00:00Z", "/until"),
        ("job_id=a", "/job_id"),
        ("since=2026-01-01T00:00:00Z", "/since"),
        ("cursor=abc", "/cursor"),
    ],
)
async def test_invalid_filters_are_rejected(api: Api, query: str, pointer: str) -> None:
    refused = await api.get(f"/runs?{query}")
    assert (refused.status, refused.pointers) == (400, [pointer])


async def test_a_cursor_belongs_to_its_filters(api: Api) -> None:
    await triggered(api, "abc")
    until = moment(api.now_us + 60_000_000)
    page: Any = await api.get(f"/runs?limit=1&until={until}")
    cursor = page.body["next_cursor"]
    assert (await api.get(f"/runs?until={until}&cursor={cursor}")).status == 200
    other = await api.get(f"/runs?until={until}&state=dead&cursor={cursor}")
    assert other.pointers == ["/cursor"]
