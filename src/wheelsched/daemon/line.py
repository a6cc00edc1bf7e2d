"""The line between a process and the one that started it: its standard input and output.

Invariant: a process that was started over a line ends with whoever holds the other end, by
whatever signal that ended: the kernel closes the line, and here that is noticed.

The first line of the input says what to do; on the output, one line says that it is being done, or
why not. Nothing of it is on a command line, where every user could read the database's password.
"""

import contextlib
import os
import sys
import threading
from typing import Final

import msgspec
from msgspec import Struct

from wheelsched import errors
from wheelsched.daemon.api import ApiDaemonConfig
from wheelsched.daemon.shard import ShardDaemonConfig
from wheelsched.errors import ProcessFailed, WheelschedError
from wheelsched.logs import LogLevel

ABANDONED: Final = 1  # the exit code of a process whose parent is gone


class Assignment(Struct, frozen=True, kw_only=True):
    """What a process is told."""

    role: ShardDaemonConfig | ApiDaemonConfig
    log_level: LogLevel = "info"


class Ready(Struct, frozen=True, tag="ready"):
    """The process does its work; `address` is where it answers."""

    address: str


class Failed(Struct, frozen=True, tag="failed"):
    """The process cannot do its work: the name of an error, and its message."""

    error: str
    reason: str

    def to_error(self) -> WheelschedError:
        """The error, as it was raised over there."""
        kind = getattr(errors, self.error, ProcessFailed)
        return kind(self.reason) if issubclass(kind, WheelschedError) else ProcessFailed()


Reply = Ready | Failed


def read_assignment() -> Assignment:
    """What to do; from then on, the end of the line ends this process."""
    assignment = msgspec.json.decode(sys.stdin.buffer.readline(), type=Assignment)
    end_with_line()
    return assignment


def end_with_line() -> None:
    """From now on this process ends with whoever holds the other end of its standard input."""
    threading.Thread(target=_hold, name="wheelsched-line", daemon=True).start()


def send(reply: Reply) -> None:
    """Answers whoever started this process, and may be gone."""
    with contextlib.suppress(OSError):
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()


def _hold() -> None:
    """Waits for the end of the line, in a thread of its own, whatever the loop is busy with."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(ABANDONED)
