"""A worker that does no work: answers every callback at once, and notes when it came.

python sink.py PORT FILE

The plainest HTTP there is, so that what is measured is the scheduler. On SIGTERM it writes one
line for each run to the file: its id, and the time of its arrival in microseconds since 1970.
"""

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import ClassVar, cast

import msgspec
import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
LENGTH = b"content-length:"
RUN_ID = b"wheelsched-run-id:"


class Element(msgspec.Struct):
    run_id: str


ELEMENTS = msgspec.json.Decoder(list[Element])


class Sink(asyncio.Protocol):
    """One connection, with requests one after the other."""

    arrivals: ClassVar[list[tuple[str, int]]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._pending = b""

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while self._take_request():
            pass

    def _take_request(self) -> bool:
        head_end = self._pending.find(b"\r\n\r\n") + 4
        if head_end < 4:
            return False
        head = self._pending[:head_end].lower()
        end = head_end + int(_header(head, LENGTH))
        if len(self._pending) < end:
            return False
        body, self._pending = self._pending[head_end:end], self._pending[end:]
        if body.startswith(b"["):
            run_ids = [element.run_id for element in ELEMENTS.decode(body)]
            answer = msgspec.json.encode([{"run_id": run_id, "ok": True} for run_id in run_ids])
        else:
            run_ids, answer = [_header(head, RUN_ID).decode()], b""
        self.arrivals.extend((run_id, time.time_ns() // 1_000) for run_id in run_ids)
        self._transport.write(ANSWER % (len(answer), answer))
        return True


def _header(head: bytes, name: bytes) -> bytes:
    start = head.index(name) + len(name)
    return head[start : head.index(b"\r\n", start)].strip()


async def serve(port: int, path: Path) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    server = await loop.create_server(Sink, "127.0.0.1", port)
    await stopped.wait()
    server.close()
    path.write_text("".join(f"{run_id} {at_us}\n" for run_id, at_us in Sink.arrivals))


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
