"""A worker in a process of its own, that remembers: `python worker.py LOG PORT TENANT=SECRET…`.

Invariant: what it received is on disk before anything is answered. All that came during one sync is
synced by the next, and nobody who comes meanwhile waits to be noted: uvloop takes up one connection
in each turn of the loop. Prints a line when it listens. A callback is answered in the *temper* that
its path names; `POST /calm` makes all of them good-natured, and answers those that were held. It
answers whatever it is sent, and notes whose secret that was signed with: the checker knows whose it
had to be.

A line of the log is an arrival, or an answer to those of one request: see `records`.
"""

import asyncio
import hmac
import os
import signal
import socket
import struct
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, ClassVar, cast

import msgspec
import uvloop

PLAIN = b"HTTP/1.1 %d %b\r\ncontent-length: %d\r\n\r\n%b"
ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n"
MICROSECOND = 1_000_000
NOBODY = "nobody"
SIGNED = (  # of the headers of a single callback, by a signature of their own
    *("wheelsched-run-id", "wheelsched-job-id", "wheelsched-job-name"),
    *("wheelsched-scheduled-at", "wheelsched-attempt", "wheelsched-fencing-token"),
    *("wheelsched-trigger", "wheelsched-timeout-ms"),
)


class Log:
    """Lines, and who waits for them to be on disk."""

    def __init__(self, path: str) -> None:
        self._file: IO[bytes] = Path(path).open("ab")  # noqa: SIM115 - as long as the process
        self._waiting: list[Callable[[], object]] = []
        self._syncing: asyncio.Task[None] | None = None
        self._numbers = 0

    def note(self, line: object) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")

    def note_arrivals(self, arrivals: Iterable[object]) -> range:
        """Their numbers."""
        first = self._numbers
        for arrival in arrivals:
            self.note(arrival)
            self._numbers += 1
        return range(first, self._numbers)

    def when_synced(self, then: Callable[[], object]) -> None:
        self._waiting.append(then)
        if self._syncing is None:
            self._syncing = asyncio.get_running_loop().create_task(self._sync())

    async def _sync(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            self._file.flush()
            await asyncio.to_thread(os.fdatasync, self._file.fileno())
            for then in waiting:
                loop.call_soon(then)  # what one of them raises is no other's
        self._syncing = None

    async def close(self) -> None:
        if self._syncing is not None:
            await self._syncing
        self._file.close()


class Signatures:
    """The secrets of all tenants, each `TENANT=whsec_…`."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._keys: dict[str, bytes] = {}
        for written in secrets:
            tenant, _, secret = written.partition("=")
            self._keys[tenant] = b64decode(secret.removeprefix("whsec_"))

    def signer(self, headers: dict[str, str], body: bytes) -> str:
        """Whose secret signed all of a request."""
        head = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode()
        signed = [(head + body, headers["webhook-signature"])]
        if not body.startswith(b"["):
            values = "\n".join(headers[name] for name in SIGNED)
            signed.append((head + values.encode(), headers["wheelsched-signature"]))
        for tenant, key in self._keys.items():
            if all(_is_signed(key, content, given) for content, given in signed):
                return tenant
        return NOBODY


def _is_signed(key: bytes, content: bytes, given: str) -> bool:
    digest = b64encode(hmac.digest(key, content, "sha256")).decode()
    return f"v1,{digest}" in given.split(" ")


class Callbacks(asyncio.Protocol):
    """One connection, with requests one after the other."""

    log: ClassVar[Log]
    signatures: ClassVar[Signatures]
    calm: ClassVar[asyncio.Event]
    tasks: ClassVar[set[asyncio.Task[None]]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._pending = b""

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while self._take_request():
            pass

    def _take_request(self) -> bool:
        head, found, rest = self._pending.partition(b"\r\n\r\n")
        if not found:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return False
        body, self._pending = rest[:length], rest[length:]
        path = first.split(" ")[1]
        if path == "/calm":
            self.calm.set()
            self._transport.write(PLAIN % (200, b"OK", 0, b""))
        else:
            temper = path[1:].partition("?")[0]
            self._receive(f"http://{headers['host']}{path}", temper, headers, body)
        return True

    def _receive(self, url: str, temper: str, headers: dict[str, str], body: bytes) -> None:
        at_us = time.time_ns() // 1_000
        elements = msgspec.json.decode(body) if body.startswith(b"[") else [_single(headers, body)]
        common = {"url": url, "at_us": at_us, "signer": self.signatures.signer(headers, body)}
        numbers = self.log.note_arrivals(_arrival(element) | common for element in elements)
        if body.startswith(b"["):
            said = msgspec.json.encode(
                [{"run_id": element["run_id"], "ok": True} for element in elements]
            )
        else:
            said = b""
        self.log.when_synced(lambda: self._answer(temper, numbers, said))

    def _answer(self, temper: str, numbers: range, body: bytes) -> None:
        if temper == "ok" or self.calm.is_set():
            self._say(numbers, "ok", PLAIN % (200, b"OK", len(body), body))
            return
        task = asyncio.get_running_loop().create_task(TEMPERS[temper](self, numbers))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _say(self, numbers: range, answer: str, data: bytes) -> None:
        answered_us = time.time_ns() // 1_000
        self.log.note([numbers[0], numbers[-1], answer, answered_us])
        if not self._transport.is_closing():  # whoever asked may be gone
            self._transport.write(data)

    async def hold(self, numbers: range) -> None:
        await self.calm.wait()
        self._say(numbers, "ok", PLAIN % (200, b"OK", 0, b""))

    async def hang(self, numbers: range) -> None:
        """Never says a word."""

    async def drip(self, numbers: range) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while not self._transport.is_closing() and not self.calm.is_set():
            self._transport.write(b".")
            await asyncio.sleep(1)

    async def reset(self, numbers: range) -> None:
        self._say(numbers, "failed", b"")
        connection: socket.socket = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    async def flood(self, numbers: range) -> None:
        """Ten gigabytes, as quickly as anybody reads them. The 200 counts."""
        self._say(numbers, "ok", ENDLESS)
        while not self._transport.is_closing() and not self.calm.is_set():
            if self._transport.get_write_buffer_size() < 1 << 20:
                self._transport.write(bytes(1 << 18))
            await asyncio.sleep(0)

    async def redirect(self, numbers: range) -> None:
        head = b"HTTP/1.1 302 Found\r\nlocation: /ok\r\ncontent-length: 0\r\n\r\n"
        self._say(numbers, "rejected", head)

    async def garbage(self, numbers: range) -> None:
        self._say(numbers, "failed", b"\x16\x03\x01 this is no HTTP\r\n\r\n\0\0\0")

    async def slow(self, numbers: range) -> None:
        await asyncio.sleep(0.3)
        self._say(numbers, "ok", PLAIN % (200, b"OK", 0, b""))

    async def uneven(self, numbers: range) -> None:
        """In every other second longer than that, so that the next run of its job finds it at work;
        and in one of four it fails, so that the next finds it waiting for another attempt."""
        second = int(time.time())
        await asyncio.sleep(1.3 if second % 2 else 0.1)
        if second % 4 == 2:
            await self.refuse(numbers)
        else:
            self._say(numbers, "ok", PLAIN % (200, b"OK", 0, b""))

    async def refuse(self, numbers: range) -> None:
        self._say(numbers, "failed", PLAIN % (503, b"Unavailable", 0, b""))


TEMPERS: dict[str, Callable[[Callbacks, range], Coroutine[None, None, None]]] = {
    name: getattr(Callbacks, name)
    for name in (
        *("hold", "hang", "drip", "reset", "flood", "redirect", "garbage", "slow", "uneven"),
        "refuse",
    )
}


def _single(headers: dict[str, str], body: bytes) -> dict[str, object]:
    return {
        "run_id": headers["wheelsched-run-id"],
        "job_id": headers["wheelsched-job-id"],
        "scheduled_at": headers["wheelsched-scheduled-at"],
        "attempt": int(headers["wheelsched-attempt"]),
        "fencing_token": int(headers["wheelsched-fencing-token"]),
        "idempotency_key": headers["idempotency-key"],
        "trigger": headers["wheelsched-trigger"],
        "payload": msgspec.json.decode(body),
    }


def _arrival(element: dict[str, object]) -> dict[str, object]:
    run_id = cast("str", element["run_id"])
    payload = cast("dict[str, object]", element["payload"])
    return {
        "job": str(element["job_id"]),
        "tenant": payload["tenant"],
        "due_us": int(run_id.partition("-")[2]),
        "scheduled_us": _instant_us(cast("str", element["scheduled_at"])),
        "key": element["idempotency_key"],
        "token": element["fencing_token"],
        "attempt": element["attempt"],
        "trigger": element["trigger"],
        "mark": payload["mark"],
    }


def _instant_us(text: str) -> int:
    instant = datetime.fromisoformat(text)
    return int(instant.replace(microsecond=0).astimezone(UTC).timestamp()) * MICROSECOND + (
        instant.microsecond
    )


async def serve(path: str, port: int, secrets: Iterable[str]) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    Callbacks.log = Log(path)
    Callbacks.signatures = Signatures(secrets)
    Callbacks.calm = asyncio.Event()
    server = await loop.create_server(Callbacks, "127.0.0.1", port, backlog=1_000)
    print("listening", flush=True)
    await stopped.wait()
    server.close()
    await Callbacks.log.close()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
