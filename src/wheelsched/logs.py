"""Logs: one line per event, to stderr: JSON for machines, coloured columns on a terminal.

Invariant: an event is `noun.verb`, and every line about a run says its run id, epoch and partition.
A line that cannot be written stops nobody. Lines are stamped with the host's wall clock, for the
eyes of people alone: nothing is decided by it.
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
    """Send every log line of this process to `stream`, stderr by default, from `level` on.

    Those of other libraries too. Called when a process starts; of several calls the last holds.
    """
    stream = stream or sys.stderr  # None, if the process was started without one
    number = logging.getLevelNamesMapping()[level.upper()]
    described: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # By way of the standard library: its handler survives a stream that is closed or full.
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


def about_run(key: RunKey, token: int) -> dict[str, str | int]:
    """The fields of every line about a run: `log.info("run.armed", **about_run(key, token))`."""
    return {
        "run_id": format_run_id(key),
        "epoch": split_token(token).epoch,
        "partition": partition_of(key.job_id),
    }


def _rendering(*, is_terminal: bool) -> list[Processor]:
    # Tracebacks without the variables of their frames: there are secrets among them.
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
