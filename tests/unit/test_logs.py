import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import structlog

from wheelsched.core.model import RunKey, parse_run_id
from wheelsched.core.partition import partition_of
from wheelsched.core.token import first_token
from wheelsched.logs import about_run, write_logs

JOB_ID = UUID("018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f")
KEY = RunKey(JOB_ID, 1_794_837_600_000_000)
SECRET = "whsec_c2VjcmV0"

log = structlog.get_logger("wheelsched.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restores the process-wide logging configuration for the other tests."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def sign(secret: str) -> None:
    raise ValueError(f"a secret of {len(secret)} characters")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_without_a_terminal_a_line_is_json_with_a_utc_timestamp() -> None:
    stream = io.StringIO()
    write_logs(stream=stream)
    log.info("job.read", job_id=JOB_ID, count=3)
    (line,) = lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.pop("timestamp"))
    assert line == {
        "event": "job.read",
        "level": "info",
        "logger": "wheelsched.test",
        "job_id": str(JOB_ID),
        "count": 3,
    }


def test_a_line_about_a_run_has_run_id_epoch_and_partition() -> None:
    stream = io.StringIO()
    write_logs(stream=stream)
    log.info("run.armed", **about_run(KEY, first_token(7) + 42))
    (line,) = lines(stream)
    assert parse_run_id(line["run_id"]) == KEY
    assert (line["epoch"], line["partition"]) == (7, partition_of(JOB_ID))


@pytest.mark.parametrize(
    ("level", "events"),
    [("debug", ["a.a", "b.b", "c.c"]), ("info", ["b.b", "c.c"]), ("warning", ["c.c"])],
)
def test_the_level_decides_what_is_written(level: Any, events: list[str]) -> None:
    stream = io.StringIO()
    write_logs(level, stream)
    log.debug("a.a")
    log.info("b.b")
    log.warning("c.c")
    assert [line["event"] for line in lines(stream)] == events


def test_a_process_without_stderr_keeps_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started with `2>&-`, Python has no `sys.stderr`."""
    monkeypatch.setattr("sys.stderr", None)
    write_logs()
    log.error("job.lost")
    logging.getLogger("asyncio").error("lost")


def test_lines_of_other_libraries_look_the_same() -> None:
    stream = io.StringIO()
    write_logs(stream=stream)
    logging.getLogger("asyncio").warning("slow by %d ms", 5)
    logging.getLogger("asyncio").debug("not wanted")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("slow by 5 ms", "warning", "asyncio")
    assert "timestamp" in line


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_traceback_does_not_show_local_variables(stream: io.StringIO) -> None:
    write_logs(stream=stream)
    try:
        sign(SECRET)
    except ValueError:
        log.exception("run.failed")
        logging.getLogger("aiohttp").exception("foreign")
    assert stream.getvalue().count("a secret of 14 characters") >= 2
    assert SECRET not in stream.getvalue()


def test_every_event_is_one_line_of_json() -> None:
    stream = io.StringIO()
    write_logs(stream=stream)
    log.info("run.failed", error="two\nlines \ud800 \x1b[31m", value=object(), big=10**400)
    (line,) = lines(stream)
    assert line["error"] == "two\nlines \ud800 \x1b[31m"


@pytest.mark.parametrize(("environment", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_columns(
    environment: dict[str, str], is_coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    write_logs(stream=stream)
    log.info("run.armed", count=3)
    assert "run.armed" in stream.getvalue()
    assert not stream.getvalue().startswith("{")
    assert ("\x1b[" in stream.getvalue()) is is_coloured


def test_a_closed_stream_does_not_raise(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    write_logs(stream=stream)
    stream.close()
    log.info("run.armed")
    assert "closed file" in capsys.readouterr().err


async def test_context_variables_of_a_task_are_logged() -> None:
    stream = io.StringIO()
    write_logs(stream=stream)

    async def work(shard: str) -> None:
        structlog.contextvars.bind_contextvars(shard=shard)
        log.info("lease.renewed")

    async with asyncio.TaskGroup() as group:
        group.create_task(work("a"))
        group.create_task(work("b"))
    assert [line["shard"] for line in lines(stream)] == ["a", "b"]
