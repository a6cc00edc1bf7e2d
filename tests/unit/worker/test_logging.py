"""The SDK logs through the application's logging configuration."""

import logging
import subprocess
import sys

import pytest
from tests.unit.worker.callbacks import make_worker, run_id, send, single

FAILING = """
import asyncio, logging, sys
{configuration}
from tests.unit.worker.callbacks import make_worker, send, single

worker = make_worker()

@worker.job()
def handle(payload): raise ValueError("no paper")

assert asyncio.run(send(worker, single())).status == 500
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    )


def test_the_sdk_does_without_structlog() -> None:
    run(
        "import sys, wheelsched.worker, wheelsched.client, wheelsched.aio\n"
        "assert 'structlog' not in sys.modules"
    )


def test_nothing_is_printed_unless_the_application_configures_logging() -> None:
    ran = run(FAILING.format(configuration=""))
    assert (ran.stdout, ran.stderr) == ("", "")


def test_the_application_decides_where_logs_go_and_how_they_look() -> None:
    configured = "logging.basicConfig(format='%(levelname)s %(name)s %(message)s')"
    ran = run(FAILING.format(configuration=configured))
    assert ran.stdout == ""
    first, *traceback = ran.stderr.splitlines()
    assert first.startswith(f"ERROR wheelsched.worker run.failed: {run_id()}")
    assert "ValueError: no paper" in first
    assert any("in handle" in line for line in traceback)


async def test_a_record_carries_the_run_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    worker = make_worker()

    @worker.job("report")
    async def handle(payload: object) -> None:
        raise ValueError("no paper")

    await send(worker, single())
    record = next(each for each in caplog.records if each.levelno == logging.ERROR)
    assert record.name == "wheelsched.worker"
    fields = ("event", "run_id", "job_name", "attempt", "error")
    assert [getattr(record, name) for name in fields] == [
        *("run.failed", run_id(), "report", 1, "ValueError: no paper")
    ]


async def test_a_refused_request_is_logged_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await send(make_worker(), ({}, b"{}"))
    (record,) = [each for each in caplog.records if each.name == "wheelsched.worker"]
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("request.refused: missing webhook-id")
