"""Structured logs on stderr: one JSON line per event, or coloured columns on a terminal.

Invariant: an event is named `noun.verb`, and every line about a run has its run id, epoch and
partition. A line that cannot be written never stops the process. Timestamps come from the host's
wall clock and are for people only.
"""

import logging
import os
import sys
from typing import Literal, TextIO, TypeAlias

import structlog
from structlog.typing import Processor

from wheelsched.core.model import RunKey, format_run_id
from wheelsched.core.partition import partition_of
from wheelsched.core.token import split_token

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


def write_logs(level: LogLevel = "info", stream: TextIO | None = None) -> None:
    """Send all log lines of this process from `level` up to `stream`, by default stderr.

    This includes the logs of other libraries. Call it when the process starts; the last call wins.
    """
    stream = stream or sys.stderr  # sys.stderr is None if the process was started without one
    number = logging.getLevelNamesMapping()[level.upper()]
    described: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Through the standard library, whose handler survives a closed or full stream.
    structlog.configure(
        processors=[*described, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    handler = logging.NullHandler() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*described, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(is_terminal=stream is not None and stream.isatty()),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)


def join_application_logs() -> None:
    """Send the log lines of this package to `logging`, so that the application's settings apply.

    Without any, `logging` writes warnings and errors to stderr. An application that has configured
    structlog keeps that.
    """
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.format_exc_info,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
        )


def about_run(key: RunKey, token: int) -> dict[str, str | int]:
    """The fields of every log line about a run.

    Use it as `log.info("run.armed", **about_run(key, token))`.
    """
    return {
        "run_id": format_run_id(key),
        "epoch": split_token(token).epoch,
        "partition": partition_of(key.job_id),
    }


def _rendering(*, is_terminal: bool) -> list[Processor]:
    # Tracebacks omit local variables, which may hold secrets.
    if is_terminal:
        return [
            structlog.dev.ConsoleRenderer(
                colors="NO_COLOR" not in os.environ,
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    return [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=str),
    ]
