"""The process between the embedded Postgres and the programs that use it.

Invariant: the server runs exactly as long as a program is connected to this process.

The kernel closes the connection when its holder ends, by whatever signal. So even `kill -9` of the
last holder stops the server like a clean exit. If this process is killed itself, the kernel signals
the server (Linux), or the next supervisor of the same home ends it (elsewhere).
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

from wheelsched.embedded.account import Account
from wheelsched.embedded.cluster import Cluster
from wheelsched.errors import EmbeddedServerFailure, StoreError

PR_SET_PDEATHSIG = 1
POLL_S = 0.01
MAX_RELAUNCHES = 60
MAX_RELAUNCH_DELAY_S = 1.0
START_RETRY_S = 0.1
MEMORY_IN_USE = "pre-existing shared memory block"
STOP_SIGNALS = ((signal.SIGINT, 30), (signal.SIGQUIT, 10), (signal.SIGKILL, 10))


class Plan(Struct, frozen=True):
    """The request of the first holder, passed as JSON."""

    home: str
    binaries: str
    account: Account
    arguments: list[str]
    start_timeout_ms: int

    def cluster(self) -> Cluster:
        """The files of the server."""
        return Cluster(Path(self.home), Path(self.binaries), self.account)


class Ready(Struct, frozen=True, tag="ready"):
    """The server accepts connections. It was started with these `arguments`."""

    arguments: list[str]


class Taken(Struct, frozen=True, tag="taken"):
    """Another supervisor holds this home; connect to that one."""


class Failed(Struct, frozen=True, tag="failed"):
    """The server did not start: the name of the error and its message."""

    error: str
    reason: str


Reply = Ready | Taken | Failed


class Supervisor:
    """One server, its listener for further holders, and the connections that keep it alive."""

    def __init__(self, plan: Plan, listener: socket.socket, connection: socket.socket) -> None:
        self._plan = plan
        self._cluster = plan.cluster()
        self._listener = listener
        self._connections = {connection}
        self._selector = selectors.DefaultSelector()
        self._server: subprocess.Popen[bytes] | None = None
        self._is_stopping = False
        self._failures = 0
        self._relaunch_delay_s: float | None = None
        self._released: list[socket.socket] = []

    def run(self) -> None:
        """Start the server, keep it running while a holder is connected, and stop it."""
        try:
            self._cluster.end_leftover_server(STOP_SIGNALS)
            self._cluster.prepare()
            self._start()
            self._serve()
        except (StoreError, OSError) as failure:
            answer = Failed(type(failure).__name__, str(failure))
            for connection in self._connections:
                send(connection, answer)
        finally:
            self._listener.close()
            self._stop()

    def _start(self) -> None:
        """Launch the server, and retry while a process of the previous one still runs.

        A busy backend does not notice at once that its server was killed, and Postgres refuses to
        start while a backend uses the old shared memory.
        """
        for _ in range(int(self._plan.start_timeout_ms / 1000 / START_RETRY_S)):
            try:
                self._launch()
            except EmbeddedServerFailure as failure:
                if MEMORY_IN_USE not in str(failure):
                    raise
                select.select((), (), (), START_RETRY_S)
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
                    f"Postgres exited with code {code} during start: {self._cluster.log_tail()}"
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
            for connection in self._connections:
                self._admit(connection)
            while self._connections and not self._is_stopping:
                if self._server and self._server.poll() is not None:
                    self._relaunch()
                for key, _ in self._selector.select(self._relaunch_delay_s):
                    self._on_event(key.fileobj, wakeup)
                self._close_released()

    def _on_event(self, source: object, wakeup: socket.socket) -> None:
        if source is wakeup:
            wakeup.recv(64)
        elif source is self._listener:
            connection, _ = self._listener.accept()
            self._connections.add(connection)
            self._admit(connection)
        elif isinstance(source, socket.socket) and reads_eof(source):
            self._selector.unregister(source)
            self._connections.discard(source)
            self._released.append(source)

    def _close_released(self) -> None:
        """Close the released connections, unless they were the last ones.

        The last ones stay open until this process ends, so that their holders see the server end.
        """
        while self._connections and self._released:
            self._released.pop().close()

    def _on_sigterm(self, *_: object) -> None:
        self._is_stopping = True

    def _admit(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ)
        send(connection, Ready(self._plan.arguments))

    def _relaunch(self) -> None:
        """Try to restart a server that ended by itself, on the same data.

        The backends of the previous server may need a while to release its shared memory. Until
        then Postgres refuses to start, and this is called again after a delay.
        """
        try:
            self._launch()
        except EmbeddedServerFailure:
            self._failures += 1
            if self._failures == MAX_RELAUNCHES:
                raise
            self._relaunch_delay_s = min(POLL_S * 2**self._failures, MAX_RELAUNCH_DELAY_S)
        else:
            self._failures = 0
            self._relaunch_delay_s = None

    def _stop(self) -> None:
        if self._server is None:
            return
        for number, timeout_s in STOP_SIGNALS:
            if self._server.poll() is None:
                self._server.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._server.wait(timeout_s)


def send(connection: socket.socket, reply: Reply) -> None:
    """Reply to a holder, which may be gone."""
    with contextlib.suppress(OSError):
        connection.sendall(msgspec.json.encode(reply) + b"\n")


def reads_eof(connection: socket.socket) -> bool:
    """Read from a holder. Returns True if it has closed its end or has died."""
    try:
        return not connection.recv(64)
    except BlockingIOError:
        return False
    except OSError:
        return True


def die_with_parent(parent: int) -> Callable[[], None] | None:
    """The function that makes the server die with its parent, run between fork and exec.

    It must run after the change of account, which clears the setting, and the parent must have a
    single thread, because the signal is sent when the forking thread dies.
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
    """A socket that becomes readable on each signal, so that `select` misses none."""
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
    """The socket where further holders of this home connect. Only our account may use it."""
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
    """`python -m wheelsched.embedded.supervisor <plan>`; standard input is the first connection.

    It continues in a detached process, so that no holder has to wait for it.
    """
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    cluster = plan.cluster()
    if os.fork():
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # do not inherit the holder's mask
    with socket.socket(fileno=os.dup(0)) as connection, cluster.lock_path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            send(connection, Taken())
            return
        # The previous supervisor may have removed the directory of the sockets.
        cluster = plan.cluster()
        with listen(cluster.supervisor_socket) as listener:
            Supervisor(plan, listener, connection).run()
        cluster.clear_runtime()


if __name__ == "__main__":
    main()
