"""A stack for the tests: `wheelsched up` as a process, and the command line on it."""

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from tests.forks import run_forked
from tests.ports import reserved_port
from tests.postgres import reachable_directory

PROGRAM = [sys.executable, "-m", "wheelsched"]
GENEROUS_S = 180


class RunningStack(Struct, frozen=True, kw_only=True):
    """What `wheelsched up` has started, as it says itself."""

    process: subprocess.Popen[str]
    home: Path
    url: str
    database_url: str
    secret: str
    grpc: str  # the address, with --grpc

    def run(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """What a command prints, stderr last, if it ends with that code."""
        environment = clean_environment() | {"WHEELSCHED_URL": self.url}
        done = run_forked(arguments, stdin, environment, GENEROUS_S)
        return _printed(arguments, done.code, done.stdout, done.stderr, expected=code)

    def run_on_terminal(self, *arguments: str, width: int) -> list[str]:
        """The lines that a command shows on a terminal of that width."""
        return run_on_terminal(*arguments, width=width, environment={"WHEELSCHED_URL": self.url})

    def read(self, *arguments: str, stdin: str = "") -> Any:
        """What a command prints as JSON."""
        return msgspec.json.decode(self.run(*arguments, "--json", stdin=stdin))


def run_on_terminal(*arguments: str, width: int, environment: dict[str, str]) -> list[str]:
    """The lines that a command shows on a terminal of that width, without their colours."""
    known = clean_environment()
    known.pop("COLUMNS", None)  # the terminal says it
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=end,
        stdout=end,
        stderr=end,
        env=known | environment | {"TERM": "xterm"},
    )
    os.close(end)
    shown = b""
    with suppress(OSError):  # EIO is its end
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    assert process.wait(GENEROUS_S) == 0, shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()


def run(
    *arguments: str, code: int = 0, stdin: str = "", environment: dict[str, str] | None = None
) -> str:
    """What a command prints, stderr last, if it ends with that code."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=GENEROUS_S,
        check=False,
        env=clean_environment() | (environment or {}),
    )
    return _printed(arguments, done.returncode, done.stdout, done.stderr, expected=code)


def _printed(
    arguments: tuple[str, ...], code: int | None, stdout: str, stderr: str, *, expected: int
) -> str:
    assert code == expected, f"{arguments}: {code}\n{stdout}\n{stderr}"
    return stdout + stderr


def clean_environment() -> dict[str, str]:
    """The environment without what would lead a command elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WHEELSCHED_")}


@contextmanager
def running_stack(*arguments: str, home: Path | None = None) -> Iterator[RunningStack]:
    """`wheelsched up` on any free port, until it is ended; whatever it left behind is killed."""
    kept = home or reachable_directory() / "home"
    with reserved_port() as port:
        process = subprocess.Popen(
            [*PROGRAM, "up", "--listen", f"127.0.0.1:{port}", "--data-dir", str(kept), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        try:
            yield _read_announcement(process, kept)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=GENEROUS_S)
            if home is None:
                shutil.rmtree(kept.parent)


def _read_announcement(process: subprocess.Popen[str], home: Path) -> RunningStack:
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if "Ctrl-C" in line:
            break
    found = [
        re.search(pattern, said)
        for pattern in (
            *(r"is up at (\S+)", r"database +(\S+)", r"secret +(whsec_\S+)"),
            r"gRPC +(\S+)",
        )
    ]
    url, database_url, secret, grpc = (match.group(1) if match else "" for match in found)
    assert url, f"it did not start:\n{said}"
    return RunningStack(
        process=process, home=home, url=url, database_url=database_url, secret=secret, grpc=grpc
    )
