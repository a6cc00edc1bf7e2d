"""Keeps a worker connected to one of several API processes, and drains it.

Invariant: while it runs, the worker is registered or tries to be; it registers again by itself. It
ends when it has been drained, or when the API refuses the worker before it was ever connected.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from http import HTTPStatus
from random import Random, SystemRandom
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from msgspec import Struct

from wheelsched.errors import (
    InvalidApiUrl,
    NotAllowed,
    NotAuthenticated,
    StreamEnded,
    quoted,
)
from wheelsched.ports import Clock
from wheelsched.wire.queue import read_queues
from wheelsched.wire.stream import PATH, SUBPROTOCOL
from wheelsched.worker import log
from wheelsched.worker.pull.hands import Hands
from wheelsched.worker.pull.stream import Stream

PREFIX: Final = "/api/v1"
CONNECT_S: Final = 10.0
CLOSE_S: Final = 2.0
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0
STOPPED_S: Final = 2.0  # until the API confirms that no run follows
REPORT_S: Final = 5.0  # for the last outcomes
POLL_NS: Final = 10_000_000  # between two looks while the worker drains
MAX_MESSAGE_BYTES: Final = 64 << 20


class PullConfig(Struct, frozen=True, kw_only=True):
    """Where a worker connects to, and what it takes."""

    urls: tuple[str, ...]
    queues: tuple[str, ...]
    token: str | None = None
    worker_id: str
    stop_timeout_s: float


def stream_url(url: str) -> str:
    """The address of the stream at the URL of an API."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidApiUrl(f"{quoted(url)} is not the URL of an API, e.g. http://127.0.0.1:8420")
    path = parts.path.rstrip("/")
    path = path if path.endswith(PREFIX) else path + PREFIX
    return urlunsplit((parts.scheme, parts.netloc, path + PATH, "", ""))


def default_worker_id() -> str:
    """A name that says where the worker runs."""
    return f"{socket.gethostname()}:{os.getpid()}"[:255]


def read_urls(url: str | Sequence[str]) -> tuple[str, ...]:
    """The addresses of the streams of one or several APIs."""
    return tuple(map(stream_url, [url] if isinstance(url, str) else url))


def read_queue_names(queues: str | Sequence[str]) -> tuple[str, ...]:
    """The queues of a worker, or `InvalidField`."""
    return tuple(read_queues([queues] if isinstance(queues, str) else queues))


class Puller:
    """Pulls runs until it is stopped."""

    def __init__(
        self, config: PullConfig, hands: Hands, clock: Clock, random: Random | None = None
    ) -> None:
        self._config = config
        self._hands = hands
        self._clock = clock
        self._random = random or SystemRandom()
        self._stream: Stream | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._was_connected = False

    async def stop(self) -> None:
        """Takes no more runs. Returns when those in hand have ended and were reported."""
        self._stopping.set()
        await self._ended.wait()

    async def run(self) -> None:
        """Pulls runs. Returns when it was stopped, and has drained."""
        connecting = asyncio.create_task(self._keep_connected())
        stopping = asyncio.create_task(self._stopping.wait())
        timeout_s = self._config.stop_timeout_s
        try:
            await asyncio.wait([connecting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                connecting.result()
        except asyncio.CancelledError:
            timeout_s = 0.0
            raise
        finally:
            stopping.cancel()
            await self._drain(timeout_s)
            connecting.cancel()
            await asyncio.wait([connecting])
            self._ended.set()

    async def _drain(self, timeout_s: float) -> None:
        self._hands.drain()
        if self._stream is not None:
            self._stream.stop()
            await self._wait(STOPPED_S, lambda: self._is_stopped)
        if not await self._wait(timeout_s, lambda: self._hands.is_empty):
            self._hands.end_all()
        if self._was_connected:
            await self._wait(REPORT_S, lambda: self._hands.is_settled)

    @property
    def _is_stopped(self) -> bool:
        return self._stream is None or self._stream.is_stopped.is_set()

    async def _wait(self, timeout_s: float, is_so: Callable[[], bool]) -> bool:
        """Waits for a condition; returns whether it came true in time."""
        until_ns = self._clock.now_ns() + int(timeout_s * 1e9)
        while not is_so() and self._clock.now_ns() < until_ns:
            await self._clock.sleep(POLL_NS)
        return is_so()

    async def _keep_connected(self) -> None:
        failures = 0
        number = self._random.randrange(len(self._config.urls))
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), max_line_size=16 << 10
        ) as session:
            while True:
                url = self._config.urls[number % len(self._config.urls)]
                begun_ns = self._clock.now_ns()
                try:
                    await self._serve(session, url)
                except (StreamEnded, aiohttp.ClientError, OSError, TimeoutError) as error:
                    self._log_end(url, error)
                finally:
                    self._stream = None
                has_lasted = self._clock.now_ns() - begun_ns > int(MAX_PAUSE_S * 1e9)
                failures = 0 if has_lasted else failures + 1
                number += 1
                most_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 10))
                await self._clock.sleep(int(self._random.uniform(0, most_s) * 1e9))

    async def _serve(self, session: aiohttp.ClientSession, url: str) -> None:
        token = self._config.token
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            async with asyncio.timeout(CONNECT_S):
                websocket = await session.ws_connect(
                    url,
                    protocols=[SUBPROTOCOL],
                    headers=headers,
                    max_msg_size=MAX_MESSAGE_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                )
        except aiohttp.WSServerHandshakeError as error:
            if not self._was_connected:
                _raise_refusal(error.status)
            raise
        async with websocket:
            stream = Stream(websocket, self._hands, self._clock)
            await stream.register(self._config.worker_id, self._config.queues)
            self._stream = stream
            self._was_connected = True
            log.write(logging.INFO, "stream.opened", f"pulling from {url}", {"url": url})
            await stream.run()

    def _log_end(self, url: str, error: Exception) -> None:
        detail = f"{url}: {str(error) or type(error).__name__}"
        log.write(logging.WARNING, "stream.ended", detail, {"url": url, "error": repr(error)})


def _raise_refusal(status: int) -> None:
    """Raises an error if trying again does not help."""
    if status == HTTPStatus.UNAUTHORIZED:
        raise NotAuthenticated(status=status)
    if status == HTTPStatus.FORBIDDEN:
        raise NotAllowed("the token needs the scope 'work'", status=status)
