"""Jobs as commands name them, against the API itself."""

import asyncio
from uuid import UUID, uuid4

import pytest
from tests.api import Api

from wheelsched.cli.jobs import find
from wheelsched.client import SyncClient
from wheelsched.errors import NotFound


async def test_a_job_is_found_by_its_id_or_by_its_name_whatever_that_looks_like(api: Api) -> None:
    name, nobody = str(uuid4()), str(uuid4())
    job_id = UUID((await api.create(name=name))["job_id"])

    def look() -> None:
        with SyncClient(api.url, api.token) as client:
            assert find(client, str(job_id)).name == name
            assert find(client, name).job_id == job_id
            for written in (nobody, "nobody"):
                with pytest.raises(NotFound, match=f"there is no job '{written}'"):
                    find(client, written)

    await asyncio.to_thread(look)
