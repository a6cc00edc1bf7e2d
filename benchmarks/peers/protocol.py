"""What every peer written in Python is asked on its command line.

python with_NAME.py enqueue URL DUES          enqueue a job for each line of a file
python with_NAME.py work URL COUNT STARTS     run jobs until so many have started, or SIGTERM

A line of DUES is a due time in microseconds since 1970; its number is the number of its job.
`enqueue` prints how many seconds it took, without the time for imports and for making tables.
A line of STARTS is the number of a job, and the time at which its handler was entered.

Only the standard library is imported here: each peer has an environment of its own.
"""

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

AT_ONCE = 1_000  # jobs to a statement, for the peers that take many


class Due(NamedTuple):
    """A job that is to be run."""

    number: int
    at_us: int

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.at_us / 1e6, UTC)


class Starts:
    """When each job was started; `wait` ends with the last of them, or with SIGTERM."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._noted: list[tuple[int, int]] = []
        self._ended = threading.Event()

    def note(self, number: int) -> None:
        self._noted.append((number, time.time_ns() // 1_000))
        if len(self._noted) >= self._count:
            self._ended.set()

    def end(self, *_: object) -> None:
        self._ended.set()

    async def wait(self) -> None:
        while not self._ended.is_set():
            await asyncio.sleep(0.1)

    def write(self, path: Path) -> None:
        path.write_text("".join(f"{number} {at_us}\n" for number, at_us in self._noted))


class Stopwatch:
    """How long the enqueueing took."""

    seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - begun


def in_parts(dues: Sequence[Due], size: int = AT_ONCE) -> Iterator[Sequence[Due]]:
    for start in range(0, len(dues), size):
        yield dues[start : start + size]


def serve(
    enqueue: Callable[[str, Sequence[Due], Stopwatch], Coroutine[Any, Any, None]],
    work: Callable[[str, Starts], Coroutine[Any, Any, None]],
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    """Does what the command line asks, on the loop that the peer likes best."""
    match sys.argv[1:]:
        case ["enqueue", url, path]:
            lines = Path(path).read_text().split()
            dues = [Due(number, int(line)) for number, line in enumerate(lines)]
            stopwatch = Stopwatch()
            run(enqueue(url, dues, stopwatch))
            print(stopwatch.seconds)
        case ["work", url, count, path]:
            starts = Starts(int(count))
            signal.signal(signal.SIGTERM, starts.end)
            try:
                run(work(url, starts))
            finally:
                starts.write(Path(path))
        case _:
            sys.exit(__doc__)
