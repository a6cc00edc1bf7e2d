"""Before every stage: the process between the embedded Postgres and the programs that use it.

Invariant: the server runs exactly as long as somebody holds a line to this process.

A *line* is a connected socket. The kernel closes it when its holder ends, by whatever signal,
so no holder has to say goodbye, and `kill -9` of the last one stops the server like a clean
exit does. Should this process be killed itself, the kernel signals the server (Linux), or the
next supervisor of the same home ends what it finds (elsewhere).
"""

import contextlib
import ctypes
import fcntl
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from wheelsched.errors import EmbeddedServerFailure, StoreError
from wheelsched.store.account import Account
from wheelsched.store.cluster import Cluster

PR_SET_PDEATHSIG = 1
POLL_S = 0.01
MOST_RELAUNCHES = 60
LONGEST_REST_S = 1.0
BEGIN_REST_S = 0.1
MEMORY_IN_USE = "pre-existing shared memory block"
STOP_SIGNALS = ((signal.SIGINT, 30), (signal.SIGQUIT, 10), (signal.SIGKILL, 10))


class Plan(Struct, frozen=True):
    """What the first holder asks for, handed over as JSON."""

    home: str
    binaries: str
    account: Account
    arguments: list[str]
    start_timeout_ms: int

    def cluster(self) -> Cluster:
        """The files that the plan is about."""
        return Cluster(Path(self.home), Path(self.binaries), self.account)


class Ready(Struct, frozen=True, tag="ready"):
    """The server accepts connections. `arguments` are those that it was started with."""

    arguments: list[str]


class Taken(Struct, frozen=True, tag="taken"):
    """Another supervisor holds this home: ask there."""


class Failed(Struct, frozen=True, tag="failed"):
    """The server did not start, and why: the name of an error and its message."""

    error: str
    reason: str


Reply = Ready | Taken | Failed


class Supervisor:
    """One server, its listener for further holders, and the lines that keep it alive."""

    def __init__(self, plan: Plan, listener: socket.socket, line: socket.socket) -> None:
        self._plan = plan
        self._cluster = plan.cluster()
        self._listener = listener
        self._lines = {line}
        self._selector = selectors.DefaultSelector()
        self._server: subprocess.Popen[bytes] | None = None
        self._told_to_stop = False
        self._failures = 0
        self._rest_s: float | None = None
        self._let_go: list[socket.socket] = []

    def run(self) -> None:
        """Starts the server, keeps it up while a line is held, and stops it."""
        try:
            self._cluster.end_leftover_server(STOP_SIGNALS)
            self._cluster.prepare()
            self._begin()
            self._serve()
        except (StoreError, OSError) as failure:
            answer = Failed(type(failure).__name__, str(failure))
            for line in self._lines:
                send(line, answer)
        finally:
            self._listener.close()
            self._stop()

    def _begin(self) -> None:
        """Launches, again and again while a process of the server before is still at work.

        One that computes does not notice at once that its server was killed, and Postgres refuses
        to start while it has the memory of that server.
        """
        for _ in range(int(self._plan.start_timeout_ms / 1000 / BEGIN_REST_S)):
            try:
                self._launch()
            except EmbeddedServerFailure as failure:
                if MEMORY_IN_USE not in str(failure):
                    raise
                select.select((), (), (), BEGIN_REST_S)
            else:
                return
        self._launch()

    def _launch(self) -> None:
        with self._cluster.open_log() as log:
            self._server = subprocess.Popen(  # noqa: S603 - our own plan
                self._cluster.command(self._plan.arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._cluster.environment(),
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - no other threads
                **self._plan.account.credentials(),
            )
        for _ in range(max(1, int(self._plan.start_timeout_ms / 1000 / POLL_S))):
            if self._cluster.is_ready(self._server.pid):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._server.wait(POLL_S)
                raise EmbeddedServerFailure(
                    f"Postgres ended with code {code} while starting: {self._cluster.log_tail()}"
                )
        raise EmbeddedServerFailure(
            f"Postgres was not ready after {self._plan.start_timeout_ms} ms: "
            f"{self._cluster.log_tail()}"
        )

    def _serve(self) -> None:
        with wakeups() as wakeup:
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self._selector.register(wakeup, selectors.EVENT_READ)
            self._selector.register(self._listener, selectors.EVENT_READ)
            for line in self._lines:
                self._admit(line)
            while self._lines and not self._told_to_stop:
                if self._server and self._server.poll() is not None:
                    self._relaunch()
                for key, _ in self._selector.select(self._rest_s):
                    self._on_event(key.fileobj, wakeup)
                self._dismiss()

    def _on_event(self, source: object, wakeup: socket.socket) -> None:
        if source is wakeup:
            wakeup.recv(64)
        elif source is self._listener:
            line, _ = self._listener.accept()
            self._lines.add(line)
            self._admit(line)
        elif isinstance(source, socket.socket) and is_let_go(source):
            self._selector.unregister(source)
            self._lines.discard(source)
            self._let_go.append(source)

    def _dismiss(self) -> None:
        """Closes the lines that were let go, unless they were the last ones: those stay open
        until this process ends, which is how their holders see that the server is gone."""
        while self._lines and self._let_go:
            self._let_go.pop().close()

    def _on_sigterm(self, *_: object) -> None:
        self._told_to_stop = True

    def _admit(self, line: socket.socket) -> None:
        line.setblocking(False)
        self._selector.register(line, selectors.EVENT_READ)
        send(line, Ready(self._plan.arguments))

    def _relaunch(self) -> None:
        """Tries to bring a server that ended by itself back, on the same data.

        The processes of the one before may need a while to notice and to let go of its shared
        memory; until then Postgres refuses to start, and this is called again after a rest.
        """
        try:
            self._launch()
        except EmbeddedServerFailure:
            self._failures += 1
            if self._failures == MOST_RELAUNCHES:
                raise
            self._rest_s = min(POLL_S * 2**self._failures, LONGEST_REST_S)
        else:
            self._failures = 0
            self._rest_s = None

    def _stop(self) -> None:
        if self._server is None:
            return
        for number, patience_s in STOP_SIGNALS:
            if self._server.poll() is None:
                self._server.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._server.wait(patience_s)


def send(line: socket.socket, reply: Reply) -> None:
    """Answers a holder, who may be gone."""
    with contextlib.suppress(OSError):
        line.sendall(msgspec.json.encode(reply) + b"\n")


def is_let_go(line: socket.socket) -> bool:
    """Whether the holder has closed its end, or has ended."""
    try:
        return not line.recv(64)
    except BlockingIOError:
        return False
    except OSError:
        return True


def die_with_parent(parent: int) -> Callable[[], None] | None:
    """What the server does between fork and exec, as the account that it runs as.

    Asked for after the change of account, which clears the request, and by a process of one
    thread: the signal comes with the death of the thread that forked.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def request() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            os._exit(1)

    return request


@contextlib.contextmanager
def wakeups() -> Iterator[socket.socket]:
    """A socket that becomes readable with each signal, so that none is missed by `select`."""
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(-1)


def listen(path: Path) -> socket.socket:
    """The socket where further holders of this home ask for a line; for our account only."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    listener.listen(64)
    return listener


def main() -> None:
    """`python -m wheelsched.store.supervisor <plan>`; standard input is the first line.

    Goes on in a process that is nobody's child, so that no holder has to wait for it.
    """
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    cluster = plan.cluster()
    if os.fork():
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the holder's mask is not ours to keep
    with socket.socket(fileno=os.dup(0)) as line, cluster.lock_path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            send(line, Taken())
            return
        # Whoever held the lock before may have cleared the directory of the sockets.
        cluster = plan.cluster()
        with listen(cluster.line_path) as listener:
            Supervisor(plan, listener, line).run()
        cluster.clear_runtime()


if __name__ == "__main__":
    main()
