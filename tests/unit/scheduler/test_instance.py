"""What an instance opens, and closes again."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.waiting import WAIT_LIMIT_S

from wheelsched.config import EmbeddedConfig
from wheelsched.scheduler import instance
from wheelsched.scheduler.config import SchedulerConfig


class SlowServer:
    """An embedded server that starts when it may."""

    url = "postgresql://"

    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_start = threading.Event()
        self.is_running = False

    def start(self, config: EmbeddedConfig) -> "SlowServer":
        self.began.set()
        assert self.may_start.wait(WAIT_LIMIT_S)
        self.is_running = True
        return self

    def stop(self) -> None:
        self.is_running = False


async def test_a_start_that_is_cancelled_does_not_leave_a_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = SlowServer()
    monkeypatch.setattr(instance, "EmbeddedPostgres", server)
    config = SchedulerConfig(home=tmp_path)

    async def start() -> None:
        async with instance.open_instance(config, lambda error: None):
            raise AssertionError

    starting = asyncio.create_task(start())
    assert await asyncio.to_thread(server.began.wait, WAIT_LIMIT_S)
    starting.cancel()
    server.may_start.set()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert not server.is_running
