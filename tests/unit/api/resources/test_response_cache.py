"""Pages that are kept: never for other versions or tenants, and never beyond their next run."""

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.api import Api
from tests.waiting import until

from wheelsched.api.resources.jobs import JobsQuery
from wheelsched.api.resources.response_cache import (
    MAX_PAGE,
    KeptPage,
    RenderedPage,
    RenderedPages,
    render,
)
from wheelsched.core.model import Draft, HttpTarget, Job, JobState
from wheelsched.ports import Caller, JobsFound, JobsPage
from wheelsched.schedule.spec import Spec
from wheelsched.values.duration import MINUTE
from wheelsched.wire.jobs import JobPage

NOW_US = 1_800_000_000_000_000
TENANT = UUID(int=2)
QUERY = JobsQuery()
JOB = Job(
    job_id=UUID(int=1),
    tenant_id=TENANT,
    name="a",
    schedule=Raw(b'"every 5m"'),
    spec=Spec(kind="every", expression="5m"),
    anchor_us=NOW_US,
    target=HttpTarget(url="https://example.org/"),
    created_at_us=NOW_US,
    updated_at_us=NOW_US,
)
DRAFT = Draft(
    job_id=UUID(int=3),
    tenant_id=TENANT,
    name="b",
    document=Raw(b"{}"),
    created_at_us=NOW_US,
    updated_at_us=NOW_US,
)


def kept(*jobs: Job | Draft) -> KeptPage:
    return KeptPage(b"fingerprint", render(jobs, None, NOW_US))


def test_a_page_is_what_is_shown_of_its_jobs() -> None:
    page = msgspec.json.decode(render([JOB, DRAFT], "next", NOW_US).body, type=JobPage)
    assert [item.name for item in page.items] == ["a", "b"]
    assert page.next_cursor == "next"


def test_a_page_holds_until_the_first_of_its_next_runs() -> None:
    later = replace(JOB, spec=Spec(kind="every", expression="1h"))
    pages, page = RenderedPages(), kept(later, JOB, replace(JOB, state=JobState.PAUSED))
    pages.keep(TENANT, QUERY, page)
    assert pages.look_up(TENANT, QUERY, NOW_US) is page
    assert pages.look_up(TENANT, QUERY, NOW_US + 5 * MINUTE - 1) is page
    assert pages.look_up(TENANT, QUERY, NOW_US + 5 * MINUTE) is None


def test_a_page_does_not_hold_before_it_was_made() -> None:
    """The database's clock may be set back, and an earlier run comes next."""
    pages = RenderedPages()
    pages.keep(TENANT, QUERY, kept(JOB))
    assert pages.look_up(TENANT, QUERY, NOW_US - 1) is None


def test_a_page_of_jobs_that_are_not_due_again_holds_for_good() -> None:
    pages, page = RenderedPages(), kept(replace(JOB, state=JobState.PAUSED))
    pages.keep(TENANT, QUERY, page)
    assert pages.look_up(TENANT, QUERY, NOW_US * 2) is page


def test_a_page_is_of_one_tenant_and_one_query() -> None:
    pages, page = RenderedPages(), kept(JOB)
    pages.keep(TENANT, QUERY, page)
    assert pages.look_up(UUID(int=9), QUERY, NOW_US) is None
    for other in (
        JobsQuery(limit=99),
        JobsQuery(cursor="x"),
        JobsQuery(state=JobState.ACTIVE),
        JobsQuery(name="a"),
        JobsQuery(tag=("a:b",)),
    ):
        assert pages.look_up(TENANT, other, NOW_US) is None
    assert pages.look_up(TENANT, JobsQuery(limit=100), NOW_US) is page


@pytest.mark.parametrize(
    "page",
    [kept(JOB, DRAFT), kept(replace(JOB, payload=Raw(b'"%s"' % (b"x" * MAX_PAGE))))],
    ids=["draft", "large"],
)
def test_pages_with_drafts_and_large_pages_are_not_kept(page: KeptPage) -> None:
    pages = RenderedPages()
    pages.keep(TENANT, QUERY, kept(JOB))
    pages.keep(TENANT, QUERY, page)
    assert pages.look_up(TENANT, QUERY, NOW_US) is None


def test_the_least_recently_used_page_makes_room() -> None:
    size = len(bytes(kept(JOB).page.body)) + 600
    pages = RenderedPages(max_bytes=2 * size)
    queries = [JobsQuery(limit=limit) for limit in (1, 2, 3)]
    pages.keep(TENANT, queries[0], kept(JOB))
    pages.keep(TENANT, queries[1], kept(JOB))
    pages.keep(TENANT, queries[1], kept(JOB))
    assert pages.look_up(TENANT, queries[0], NOW_US)
    pages.keep(TENANT, queries[2], kept(JOB))
    found = [pages.look_up(TENANT, query, NOW_US) is not None for query in queries]
    assert found == [True, False, True]


async def test_a_list_shows_what_a_job_is_now(api: Api) -> None:
    job = await api.create(name="a")
    path = f"/jobs/{job['job_id']}"
    for method, verb, body in (
        ("PATCH", "", {"priority": 7}),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
    ):
        for _ in range(2):
            (listed,) = (await api.get("/jobs")).body["items"]
            assert listed == (await api.get(path)).body
        assert (await api.call(method, path + verb, body)).status == 200
    (listed,) = (await api.get("/jobs")).body["items"]
    assert listed["priority"] == 7
    assert listed == (await api.get(path)).body
    assert (await api.call("DELETE", path)).status == 200
    assert (await api.get("/jobs")).body["items"] == []


async def test_pages_that_are_read_again_are_the_same(api: Api) -> None:
    for name in "abc":
        await api.create(name=name)
    first = await api.get("/jobs?limit=2")
    assert [job["name"] for job in first.body["items"]] == ["a", "b"]
    assert (await api.get("/jobs?limit=2")).body == first.body
    next_path = f"/jobs?limit=2&cursor={first.body['next_cursor']}"
    rest = await api.get(next_path)
    assert [job["name"] for job in rest.body["items"]] == ["c"]
    assert rest.body["next_cursor"] is None
    await api.create(name="d")  # on the page after the one that is kept
    assert (await api.get("/jobs?limit=2")).body == first.body
    assert [job["name"] for job in (await api.get(next_path)).body["items"]] == ["c", "d"]


async def test_the_store_is_told_what_is_known(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.create(name="a")
    jobs = api.stores.jobs
    list_jobs_unless, asked = jobs.list_jobs_unless, []

    async def note(caller: Caller, page: JobsPage, known: bytes | None) -> JobsFound:
        found = await list_jobs_unless(caller, page, known)
        asked.append((known, found.fingerprint, found.jobs is None))
        return found

    monkeypatch.setattr(jobs, "list_jobs_unless", note)
    assert (await api.get("/jobs")).body == (await api.get("/jobs")).body
    fingerprint = asked[0][1]
    assert asked == [(None, fingerprint, False), (fingerprint, fingerprint, True)]


async def test_requests_that_wait_for_the_same_page_render_it_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.create(name="a")
    jobs = api.stores.jobs
    list_jobs_unless, waiting, answered = jobs.list_jobs_unless, [], asyncio.Event()
    rendered = []

    async def wait(caller: Caller, page: JobsPage, known: bytes | None) -> JobsFound:
        waiting.append(known)
        await answered.wait()
        return await list_jobs_unless(caller, page, known)

    def count(*arguments: Any) -> RenderedPage:
        rendered.append(arguments)
        return render(*arguments)

    async def all_wait() -> bool:
        return len(waiting) == 3

    monkeypatch.setattr(jobs, "list_jobs_unless", wait)
    monkeypatch.setattr("wheelsched.api.resources.jobs.render", count)
    requests = [asyncio.create_task(api.get("/jobs")) for _ in range(3)]
    await until(all_wait)
    answered.set()
    pages = await asyncio.gather(*requests)
    assert waiting == [None] * 3
    assert len(rendered) == 1
    assert pages[0].body == pages[1].body == pages[2].body
