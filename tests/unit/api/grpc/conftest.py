"""The API with queues in memory, and calls by gRPC."""

from collections.abc import AsyncIterator

import pytest
from tests.contract.work.conftest import Scheduler, scheduler
from tests.contract.work.grpc_protocols import Calls

__all__ = ["scheduler"]


@pytest.fixture
async def calls(scheduler: Scheduler) -> AsyncIterator[Calls]:
    made = Calls(scheduler.api.grpc, scheduler.api.token)
    yield made
    await made.close()
