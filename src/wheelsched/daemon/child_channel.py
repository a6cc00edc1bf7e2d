"""The channel between a child process and its parent: the child's stdin and stdout.

Invariant: a child exits when its parent exits, however that happens: the kernel closes the pipe,
and the child notices.

The first line of stdin is the assignment. Lines on stdout report the shard ids under which the
child joins, and success or failure. The command line carries nothing, because every user could read
the database password there.
"""

import contextlib
import os
import sys
from uuid import UUID

import msgspec
from msgspec import Struct

from wheelsched import errors
from wheelsched.daemon.api import ApiDaemonConfig
from wheelsched.daemon.parent import exit_with_parent
from wheelsched.daemon.shard import ShardDaemonConfig
from wheelsched.errors import ProcessFailed, WheelschedError
from wheelsched.logs import LogLevel

STDOUT = 1


class Assignment(Struct, frozen=True, kw_only=True):
    """What a child process is to run."""

    role: ShardDaemonConfig | ApiDaemonConfig
    log_level: LogLevel = "info"


class Joining(Struct, frozen=True, tag="joining"):
    """The process is about to join the shards, under this id until it names another."""

    shard_id: UUID


class Ready(Struct, frozen=True, tag="ready"):
    """The process is working; `address` is where it listens."""

    address: str


class Failed(Struct, frozen=True, tag="failed"):
    """The process cannot work: the name of an error and its message."""

    error: str
    reason: str

    def to_error(self) -> WheelschedError:
        """The error as the child raised it."""
        kind = getattr(errors, self.error, ProcessFailed)
        return kind(self.reason) if issubclass(kind, WheelschedError) else ProcessFailed()


Reply = Joining | Ready | Failed


def read_assignment() -> Assignment:
    """Reads the assignment; from then on this process exits with its parent."""
    assignment = msgspec.json.decode(sys.stdin.buffer.readline(), type=Assignment)
    exit_with_parent()
    return assignment


def send(reply: Reply) -> None:
    """Reports to the parent, which may be gone. The report outlives this process in the pipe."""
    with contextlib.suppress(OSError):
        os.write(STDOUT, msgspec.json.encode(reply) + b"\n")


def read_reply(line: bytes) -> Reply | None:
    """What a child reports; None if a library printed the line."""
    try:
        reply: Reply = msgspec.json.decode(line, type=Reply)
    except msgspec.DecodeError:
        return None
    return reply
