"""The parent of a single shard: a process that waits for it, and certifies its death.

Invariant: the parent does nothing but wait. It forwards signals, ends as the shard ended, and if it
is killed the shard exits. It is forked before anything is imported that only a shard needs, so that
it takes a few MiB: what two processes of Python share at first, the busy one soon copies. What it
needs to end a lease it imports when the shard has died.
"""

import contextlib
import mmap
import os
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Final, NoReturn
from uuid import UUID

STOPPING: Final = frozenset({signal.SIGTERM, signal.SIGINT})
WATCHED: Final = STOPPING | {signal.SIGHUP, signal.SIGCHLD}
STOP_FROM_PARENT: Final = signal.SIGUSR1  # by which a parent forwards that it was asked to stop
SIGNALLED: Final = 128  # added to the number of a signal, as shells do
STDIN: Final = 0
EXIT_ORPHANED: Final = 1  # exit code of a child without a parent
SHARED_BYTES: Final = 1 << 16
UUID_BYTES: Final = 16


class ShardRecord:
    """What the parent needs to know of its shard, in memory that outlives the shard's process.

    It has the last ids under which the shard has joined, and a document that says how to end their
    leases. A shard that loses its lease joins again; its older leases have expired.
    """

    MOST_IDS: Final = 16
    DOCUMENT: Final = MOST_IDS * UUID_BYTES  # where it begins

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SHARED_BYTES)  # shared with forked processes
        self._added = 0

    def describe(self, document: bytes) -> None:
        """Sets the document, once, before the first id."""
        self._memory[self.DOCUMENT : self.DOCUMENT + len(document)] = document

    def add(self, shard_id: UUID) -> None:
        start = self._added % self.MOST_IDS * UUID_BYTES
        self._memory[start : start + UUID_BYTES] = shard_id.bytes
        self._added += 1

    @property
    def document(self) -> bytes:
        return self._memory[self.DOCUMENT :].rstrip(b"\0")

    @property
    def shard_ids(self) -> set[UUID]:
        starts = range(0, self.DOCUMENT, UUID_BYTES)
        ids = {UUID(bytes=self._memory[start : start + UUID_BYTES]) for start in starts}
        return ids - {UUID(int=0)}


_record: ShardRecord | None = None


def record_for_parent() -> ShardRecord | None:
    """The record that the parent of this process reads, if it has such a parent."""
    return _record


def needs_parent(arguments: Sequence[str]) -> bool:
    """Whether a command line runs a single shard, and does not refuse a parent."""
    if arguments[:1] != ["shard"] or {"--no-parent", "--help"} & set(arguments):
        return False
    words = [word for each in arguments for word in each.split("=", 1)]
    return "--processes" not in words or "1" in words[words.index("--processes") + 1 :][:1]


def fork_under_parent() -> None:
    """Continues in a child process. The parent stays here, and exits as the child does."""
    global _record  # noqa: PLW0603 - it belongs to the process
    record = ShardRecord()
    lifeline, parent_end = os.pipe()  # never written to: its end says that the parent is gone
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if inherited as ignored, no death is reported
    child = os.fork()
    if child:
        os.close(lifeline)
        code = wait_for(child)
        if record.shard_ids:
            _certify(record)
        _exit_as(code)
    os.close(parent_end)
    signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    os.setsid()  # so that Ctrl-C reaches only the parent, which forwards it once
    exit_with_parent(lifeline)
    _record = record


def wait_for(child: int) -> int:
    """Waits for a child and forwards signals to it. Returns its end, like `Popen.returncode`.

    The watched signals are blocked. It also waits for the orphans that the first process of a
    container inherits.
    """
    stopped_by: signal.Signals | None = None
    while True:
        match signal.sigwait(WATCHED):
            case signal.SIGCHLD:
                for pid, status in _ended():
                    if pid == child:
                        return _original(os.waitstatus_to_exitcode(status), stopped_by)
            case signal.SIGHUP:
                os.kill(child, signal.SIGHUP)
            case number:
                stopped_by = signal.Signals(number)
                os.kill(child, STOP_FROM_PARENT)


def _ended() -> list[tuple[int, int]]:
    """The children that have ended, each with its status."""
    ended = []
    with contextlib.suppress(ChildProcessError):  # none is left
        while (waited := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(waited)
    return ended


def _original(code: int, stopped_by: signal.Signals | None) -> int:
    """The exit code, with the signal that the parent got instead of the one that it sent."""
    if stopped_by is None:
        return code
    return {
        -STOP_FROM_PARENT: -stopped_by,
        SIGNALLED + STOP_FROM_PARENT: SIGNALLED + stopped_by,
    }.get(code, code)


def exit_with_parent(pipe: int = STDIN) -> None:
    """Makes this process exit when the parent's end of a pipe is closed."""
    threading.Thread(
        target=_wait_for_eof, args=(pipe,), name="wheelsched-parent-watch", daemon=True
    ).start()


def _wait_for_eof(pipe: int) -> None:
    """Waits for the end of a pipe, in its own thread so that a busy event loop does not matter."""
    with contextlib.suppress(OSError):
        while os.read(pipe, 4096):
            pass
    os._exit(EXIT_ORPHANED)


def _certify(record: ShardRecord) -> None:
    """Ends the leases of the shard."""
    from wheelsched.daemon.certificates import certify_record  # noqa: PLC0415 - only now

    certify_record(record)


def _exit_as(code: int) -> NoReturn:
    """Ends this process as the child ended: with its code, or by its signal."""
    if code >= 0:
        sys.exit(code)
    number = signal.Signals(-code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core dump is enough
    with contextlib.suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(SIGNALLED + number)  # the first process of a container cannot be killed by itself
