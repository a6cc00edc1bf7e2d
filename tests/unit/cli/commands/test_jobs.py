"""`job` commands against the real API."""

import asyncio
import re
from io import StringIO
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.api import Api

from wheelsched.cli.commands.jobs import _changed as changed
from wheelsched.cli.commands.jobs import _shown as shown
from wheelsched.cli.commands.jobs import explanation, find
from wheelsched.cli.output import Output
from wheelsched.client import SyncClient
from wheelsched.errors import NotFound
from wheelsched.wire.job import JobAnswer
from wheelsched.wire.schedule import ExplainAnswer, Verdict


async def test_a_registered_job_is_shown_with_its_warnings(api: Api) -> None:
    await api.create(name="report", schedule="0 0 12 ? * 2-6")
    await api.create(name="plain", schedule="0 9 * * *")

    def look() -> list[str]:
        with SyncClient(api.url, api.token) as client:
            return [printed(shown(find(client, name))) for name in ("report", "plain")]

    report, plain = await asyncio.to_thread(look)
    assert "warning 1" in report
    assert "in Quartz" in report
    assert "warning" not in plain


async def test_a_job_for_a_queue_is_shown_with_its_queue(api: Api) -> None:
    await api.create(name="report", target={"queue": "billing", "claim_within": "2h"})

    def look() -> str:
        with SyncClient(api.url, api.token) as client:
            return printed(shown(find(client, "report")))

    report = await asyncio.to_thread(look)
    assert "queue billing" in report
    assert re.search(r"claim within\s+2h", report)
    assert "batch" not in report


async def test_a_job_without_a_due_time_so_far_is_explained_by_its_next_one(api: Api) -> None:
    await api.create(name="yearly", schedule="0 0 1 1 *")
    await api.create(name="often", schedule="every 5m")

    def look() -> list[ExplainAnswer]:
        with SyncClient(api.url, api.token) as client:
            return [explanation(client, find(client, name)) for name in ("yearly", "often")]

    for answer in await asyncio.to_thread(look):
        assert answer.verdict is Verdict.NOT_YET


@pytest.mark.parametrize(
    ("retry", "words"),
    [
        ({}, "4 attempts, exponential from 1s to 5m"),
        ({"backoff": "fixed", "initial": "3s"}, "4 attempts, fixed at 3s"),
        ({"max_attempts": 1}, "1 attempt"),
    ],
)
async def test_the_retry_policy_is_shown_as_it_works(
    api: Api, retry: dict[str, object], words: str
) -> None:
    await api.create(name="report", retry=retry)

    def look() -> str:
        with SyncClient(api.url, api.token) as client:
            return printed(shown(find(client, "report")))

    assert re.search(rf"retry\s+{words} *\n", await asyncio.to_thread(look))


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "deleted report"),
        (2, "deleted report; too late for run-0, run-1"),
        (30, "deleted report; too late for run-0, run-1, run-2 and 27 more"),
    ],
)
async def test_a_change_names_the_first_runs_that_it_came_too_late_for(
    api: Api, count: int, words: str
) -> None:
    await api.create(name="report")

    def look() -> JobAnswer:
        with SyncClient(api.url, api.token) as client:
            return find(client, "report")

    job = replace(
        await asyncio.to_thread(look), too_late=tuple(f"run-{number}" for number in range(count))
    )
    assert printed(changed(job, "deleted")).strip() == words


def printed(output: Output) -> str:
    console = Console(width=1_000, file=StringIO())
    console.print(output.text)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


async def test_a_job_is_found_by_its_id_or_by_its_name_whatever_that_looks_like(api: Api) -> None:
    name, nobody = str(uuid4()), str(uuid4())
    job_id = UUID((await api.create(name=name))["job_id"])

    def look() -> None:
        with SyncClient(api.url, api.token) as client:
            assert find(client, str(job_id)).name == name
            assert find(client, name).job_id == job_id
            for written in (nobody, "nobody"):
                with pytest.raises(NotFound, match=f"job '{written}' not found"):
                    find(client, written)

    await asyncio.to_thread(look)
