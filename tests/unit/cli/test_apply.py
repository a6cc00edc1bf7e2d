"""Files that are applied, against the API itself."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from tests.api import Api

from wheelsched.cli.apply import Action, plan, take
from wheelsched.cli.commands import tell
from wheelsched.cli.manifest import is_same
from wheelsched.client import SyncClient
from wheelsched.errors import NameTaken
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


async def test_what_was_applied_is_kept(api: Api) -> None:
    with SyncClient(api.url, api.token) as client:

        @settings(max_examples=25)  # each asks the API a dozen times
        @given(DOCUMENTS, DOCUMENTS)
        def apply(before: JobDocument, after: JobDocument) -> None:
            for each in (before, after):
                take([plan(client, each)])
                assert plan(client, each).step.action is Action.KEEP
            (job,) = client.list_jobs(name="a")
            for kept, meant in ((job.payload, after.payload), (job.schedule, after.schedule)):
                assert is_same(msgspec.json.decode(kept), msgspec.json.decode(meant))
            client.delete_job(job.job_id)

        await asyncio.to_thread(apply)


async def test_a_file_that_fails_halfway_says_where(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody else takes a name between the look and the step."""

    def apply() -> None:
        with SyncClient(api.url, api.token) as client:
            planned = [plan(client, document(name)) for name in ("a", "b", "c", "d")]
            assert {each.step.action for each in planned} == {Action.CREATE}
            client.create_job(document("c"))
            take(planned)

    with pytest.raises(NameTaken) as raised:
        await asyncio.to_thread(apply)
    tell(raised.value)
    said = capsys.readouterr().err
    assert "this was at: create 'c'" in said
    assert "done before: create 'a', create 'b'; not done: 2 of 4" in said
