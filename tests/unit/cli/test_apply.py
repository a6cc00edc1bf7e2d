"""Files that are applied, against the API itself."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw
from tests.api import Api, serve

from wheelsched.cli.apply import Action, plan, take
from wheelsched.cli.commands import tell
from wheelsched.client import SyncClient
from wheelsched.errors import NameTaken
from wheelsched.testing import MemoryStore
from wheelsched.wire.job import JobDocument, TargetDocument


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    async with serve(store, store) as served:
        yield served


def document(name: str) -> JobDocument:
    return JobDocument(
        name=name,
        schedule=Raw(b'"@daily"'),
        target=TargetDocument(url="https://example.org/"),
    )


async def test_a_file_that_fails_halfway_says_where(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody else takes a name between the look and the step."""

    def apply() -> None:
        with SyncClient(str(api.client._base_url), api.token) as client:
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
