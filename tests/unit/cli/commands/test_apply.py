"""`job apply` against the real API."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from tests.api import Api

from wheelsched.cli.commands.apply import Action, Planned, plan, plan_all, take
from wheelsched.cli.manifest import is_same, read_entries
from wheelsched.cli.shared import print_error
from wheelsched.client import SyncClient
from wheelsched.core.model import Job, JobState
from wheelsched.errors import InvalidDocument, InvalidRequest, NameTaken
from wheelsched.jobs.targets import headers_of
from wheelsched.ports import Caller, JobFilter, Plan
from wheelsched.schedule.spec import Spec
from wheelsched.testing import MemoryStore
from wheelsched.wire.job import JobDocument, TargetDocument


def document(name: str, **fields: Any) -> JobDocument:
    return JobDocument(
        name=name,
        schedule=fields.pop("schedule", Raw(b'"@daily"')),
        target=TargetDocument(url="https://example.org/", headers=fields.pop("headers", None)),
        **fields,
    )


def raw(tree: Any) -> Raw:
    return Raw(msgspec.json.encode(tree))


def actions(planned: list[Planned]) -> list[Action]:
    return [each.step.action for each in planned]


async def refuse(api: Api, written: dict[str, Any]) -> None:
    """A job scheduled in SQL that a shard refuses."""
    assert isinstance(api.stores, MemoryStore)
    draft = api.stores.application.schedule(Caller(api.tenant_id, "app"), uuid4(), written)
    (entry,) = await api.shard.plans.list_unplanned(range(256), 9)
    refused = Plan(number=entry.number, draft=draft, error="/schedule: no")
    await api.shard.plans.plan(await api.own_all(), [refused])


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"))
PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1),
    lambda inner: st.dictionaries(st.sampled_from("ab"), inner) | st.lists(inner, max_size=1),
    max_leaves=4,
)
SCHEDULES = st.sampled_from(
    ["@daily", {"cron": "@daily"}, {"cron": "@daily", "exclude": ["2099-12-25"]}, {"every": "5m"}]
)
DOCUMENTS = st.builds(
    document,
    st.just("a"),
    schedule=SCHEDULES.map(raw),
    payload=PAYLOADS.map(raw),
    headers=LABELS,
    tags=LABELS,
    timeout=st.sampled_from([None, "9s"]),
)


async def applied(api: Api, *documents: JobDocument) -> list[Planned]:
    """The plan for the last document, after the others were applied."""

    def apply() -> list[Planned]:
        with SyncClient(api.url, api.token) as client:
            for each in documents[:-1]:
                take(plan(client, each))
            return plan(client, documents[-1])

    return await asyncio.to_thread(apply)


SECRET = {"authorization": "Bearer s3cret", "x-team": "a"}
OTHER = {"authorization": "Bearer other", "x-team": "a"}


async def test_a_file_with_a_credential_is_applied_once(api: Api) -> None:
    same = document("a", headers=SECRET)
    assert actions(await applied(api, same, same)) == [Action.KEEP]


async def test_another_credential_is_an_update_that_shows_neither(api: Api) -> None:
    before, after = document("a", headers=SECRET), document("a", headers=OTHER)
    (planned,) = await applied(api, before, after)
    (difference,) = planned.step.differences
    assert planned.step.action is Action.UPDATE
    assert difference.field == "target.headers"
    assert difference.after == {"authorization": "*** (changed)", "x-team": "a"}
    assert "s3cret" not in str(planned.step)
    assert "other" not in str(planned.step)
    (planned,) = await applied(api, after, after)
    assert planned.step.action is Action.KEEP
    (job,) = await api.stores.jobs.list_jobs(Caller(api.tenant_id, "test"), JobFilter(), 9)
    assert isinstance(job, Job)
    assert headers_of(job.target) == OTHER


async def test_a_file_moves_a_job_to_a_queue_and_back(api: Api) -> None:
    at_url = document("a", headers=SECRET)
    in_queue = replace(at_url, target=TargetDocument(queue="billing"))
    for before, after in ((at_url, in_queue), (in_queue, at_url)):
        (planned,) = await applied(api, before, after)
        assert planned.step.action is Action.UPDATE
        assert "s3cret" not in str(planned.step)
        assert actions(await applied(api, after, after)) == [Action.KEEP]


async def test_a_new_credential_is_shown_masked(api: Api) -> None:
    before, after = document("a", headers={"x-team": "a"}), document("a", headers=SECRET)
    (planned,) = await applied(api, before, after)
    assert planned.step.action is Action.UPDATE
    assert "s3cret" not in str(planned.step)


async def test_a_file_with_masks_keeps_the_stored_credentials(api: Api) -> None:
    masked = SECRET | {"authorization": "***"}
    before, after = document("a", headers=SECRET), document("a", headers=masked)
    assert actions(await applied(api, before, after)) == [Action.KEEP]
    edited = document("a", headers=masked | {"x-team": "b"})
    assert actions(await applied(api, before, edited, after)) == [Action.UPDATE]


async def test_a_new_job_with_a_mask_is_refused_before_anything_is_done(api: Api) -> None:
    with pytest.raises(InvalidRequest, match="stored value"):
        await applied(api, document("a", headers={"authorization": "***"}))


async def test_a_credential_of_a_finished_one_off_is_compared_too(api: Api) -> None:
    past = "2001-01-01T00:00:00Z"
    made = await api.create(name="a", target={"url": "https://example.org/", "headers": SECRET})
    job = await api.job(made["job_id"])
    spec = Spec(kind="at", expression=past)
    ended = replace(job, schedule=raw(past), spec=spec, version=job.version + 1)
    caller = Caller(api.tenant_id, "test")
    await api.stores.jobs.edit(caller, ended, None, is_rescheduled=False)
    same = document("a", headers=SECRET, schedule=raw(past))
    assert actions(await applied(api, same)) == [Action.KEEP]
    other = document("a", headers=OTHER, schedule=raw(past))
    assert actions(await applied(api, other)) == [Action.UPDATE]


async def test_applying_twice_changes_nothing(api: Api) -> None:
    with SyncClient(api.url, api.token) as client:

        @settings(max_examples=25)  # each asks the API a dozen times
        @given(DOCUMENTS, DOCUMENTS)
        def apply(before: JobDocument, after: JobDocument) -> None:
            for each in (before, after):
                take(plan(client, each))
                assert actions(plan(client, each)) == [Action.KEEP]
            (job,) = client.list_jobs(name="a")
            for kept, meant in ((job.payload, after.payload), (job.schedule, after.schedule)):
                assert is_same(msgspec.json.decode(kept), msgspec.json.decode(meant))
            client.delete_job(job.job_id)

        await asyncio.to_thread(apply)


async def test_all_invalid_jobs_are_reported_and_nothing_is_changed(
    api: Api, tmp_path: Path
) -> None:
    """Problems found in the file itself, and problems that only the API finds."""
    file = tmp_path / "jobs.yaml"
    file.write_text(
        """\
- {name: right, schedule: "@daily", target: {url: "https://a.b/"}}
- {name: field, cron: "@daily", target: {url: "https://a.b/"}, schedule: "@daily"}
- name: schedule
  target: {url: "https://a.b/"}
  schedule: "61 * * * *"
- {name: policy, schedule: "@daily", target: {url: "ftp://a.b/"}, retry: {backoff: never}}
"""
    )

    def apply() -> None:
        with SyncClient(api.url, api.token) as client:
            with pytest.raises(InvalidDocument) as raised:
                plan_all(client, read_entries(str(file)))
            lines = str(raised.value).splitlines()[1:]
            starts = [line.removeprefix(f"{file}:") for line in lines]
            assert starts[0].startswith("2: job 'field': /cron: ")
            assert starts[1].startswith("5: job 'schedule': /schedule: ")
            assert {line.split(": ")[2] for line in starts[2:]} == {
                "/target/url",
                "/retry/backoff",
            }
            assert list(client.list_jobs()) == []

    await asyncio.to_thread(apply)


async def test_what_only_a_file_can_have_wrong_is_told_beside_the_rest(
    api: Api, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        """\
- {name: a, schedule: in 5m, timezone: Mars, target: {url: "https://a.b/"}}
- {name: b, cron: "@daily", target: {url: "https://a.b/"}, schedule: "@daily"}
- {name: a, schedule: "@daily", timezone: Mars, target: {url: "https://a.b/"}}
- {name: b, schedule: "@daily", retries: 3, target: {url: "https://a.b/"}}
"""
    )

    def apply() -> None:
        with SyncClient(api.url, api.token) as client, pytest.raises(InvalidDocument) as raised:
            plan_all(client, read_entries(str(file)))
        lines = str(raised.value).splitlines()[1:]
        assert [line.removeprefix(f"{file}:").split(": ")[:3] for line in lines] == [
            ["1", "job 'a'", "/schedule"],
            ["1", "job 'a'", "/timezone"],
            ["2", "job 'b'", "/cron"],
            ["3", "job 'a'", "/name"],
            ["3", "job 'a'", "/timezone"],
            ["4", "job 'b'", "/name"],
            ["4", "job 'b'", "/retries"],
        ]

    await asyncio.to_thread(apply)


async def test_a_partial_failure_reports_what_was_done(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another client takes a name between planning and applying."""

    def apply() -> None:
        with SyncClient(api.url, api.token) as client:
            planned = [each for name in "abcd" for each in plan(client, document(name))]
            assert actions(planned) == [Action.CREATE] * 4
            client.create_job(document("c"))
            take(planned)

    with pytest.raises(NameTaken) as raised:
        await asyncio.to_thread(apply)
    print_error(raised.value)
    said = capsys.readouterr().err
    assert "failed step: create 'c'" in said
    assert "done before: create 'a', create 'b'; not done: 2 of 4" in said


async def test_a_refused_job_is_replaced(api: Api) -> None:
    """A refused job cannot be changed, only deleted."""
    target = {"url": "https://example.org/"}
    await refuse(api, {"name": "a", "schedule": "61 * * * *", "target": target})

    def apply() -> None:
        with SyncClient(api.url, api.token) as client:
            still_bad = document("a", schedule=raw("61 * * * *"))
            with pytest.raises(InvalidRequest):
                plan(client, still_bad)
            planned = plan(client, document("a"))
            assert actions(planned) == [Action.DELETE, Action.CREATE]
            (difference,) = planned[0].step.differences
            assert (difference.field, difference.before) == ("state", JobState.REFUSED)
            take(planned)
            assert actions(plan(client, document("a"))) == [Action.KEEP]
            (job,) = client.list_jobs()
            assert job.state is JobState.ACTIVE

    await asyncio.to_thread(apply)
