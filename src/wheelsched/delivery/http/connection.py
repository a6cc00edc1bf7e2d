"""One HTTP connection to a worker, for one request at a time.

Invariant: a request is written at once, and its response is read within its size limit and its
deadline. Each request gets exactly one result. A connection with unexpected data is not used again.
A request is sent on one connection only: if it is not answered there, it has failed, because the
worker may have executed it.

Per request, only a future is created. The single timer of a connection is not moved with every
deadline: when it rings early, it is set again for the current deadline.
"""

import asyncio
import math
import re
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from wheelsched.core.outcome import TransportFailure
from wheelsched.delivery.http.response import Answer

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_FRAMING: Final = 8  # bytes received per byte of a body; a chunk of one byte takes six
KEEP_ALIVE_MARGIN_S: Final = 1.0  # stop using a connection this long before the worker closes it
TIMER_RESOLUTION_S: Final = 0.001  # of uvloop
_PEEK: Final = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)  # combining flags is slow

HEAD_TOO_LONG: Final = "its headers are too long"
NOT_COMPLETE: Final = "its body was incomplete"

_KEEP_ALIVE: Final = re.compile(rb"(?:^|[\s,;])timeout=([0-9]{1,6})(?![0-9])", re.IGNORECASE)


Heard = TypeVar("Heard")


class UnexpectedAnswer(Exception):
    """the worker sent an unexpected response"""


class ConnectionOwner(Protocol):
    """The owner of connections."""

    def release(self, connection: "Connection") -> None:
        """Take back a connection that is free for the next request."""

    def discard(self, connection: "Connection") -> None:
        """Remove a closed connection."""


class Connection(asyncio.Protocol):
    """The protocol of one connection, for the loop and for httptools' parser."""

    def __init__(
        self, owner: ConnectionOwner, pool_key: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.pool_key = pool_key
        self.socket: socket.socket | None = None  # owned by the loop; only to peek
        self.is_reused = False  # it was idle before the current request
        self.max_idle_s = math.inf  # by the worker's `Keep-Alive` header
        self.lost: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._loop = loop
        self._parser = HttpResponseParser(self)
        self._is_ended = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.Handle | None = None
        self._rings_at_s = 0.0
        self._deadline_s = 0.0
        self._asked: asyncio.Future[Any] | None = None
        self._read: Callable[[Answer], object] | None = None
        self._most_bytes = 0
        self._expect()

    @property
    def is_open(self) -> bool:
        """Whether it can send a request, as far as is known."""
        return (
            not self._is_ended and self._transport is not None and not self._transport.is_closing()
        )

    @property
    def is_quiet(self) -> bool:
        """Whether the socket has no unread data.

        On an idle connection, such data is a close by the worker, or unexpected.
        """
        if self.socket is None:
            return True
        try:
            self.socket.recv(1, _PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def ask(
        self, request: bytes, most_bytes: int, deadline_s: float, read: Callable[[Answer], Heard]
    ) -> asyncio.Future[Heard]:
        """Write a request. The future resolves to `read` of its response, or of its failure."""
        assert self._asked is None
        asked: asyncio.Future[Heard] = self._loop.create_future()
        asked.add_done_callback(self._end_if_cancelled)
        self._expect()
        self._most_bytes = most_bytes
        self._received_bytes = 0
        self._asked = asked
        self._read = read
        if self._transport is None or self._is_ended:
            self._resolve(Answer(status=TransportFailure.CONNECTION_LOST))
        else:
            self.watch(deadline_s)
            self._transport.write(request)
        return asked

    def watch(self, deadline_s: float) -> None:
        """End the connection and its request when this time of the loop has passed."""
        self._deadline_s = deadline_s
        if self._timer is None or self._rings_at_s > deadline_s:
            self._set_timer()

    def end(self) -> None:
        """End the connection now."""
        if self._is_ended:
            return
        self._is_ended = True
        del self._parser  # breaks the reference cycle, so that memory is freed at once
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        else:
            self.lost.set_result(None)
        self._resolve(Answer(status=TransportFailure.CONNECTION_LOST))
        self._owner.discard(self)

    # Callbacks of the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # or uvloop's
        self._transport.set_write_buffer_limits(high=0)  # else uvloop delays writes
        if self._is_ended:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._asked is None or self._asked.cancelled():
            self.end()
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._is_complete:
                self._fail(TransportFailure.BAD_ANSWER, _explain(error))
                return
            self._is_reusable = False  # the data after the response was invalid
        if self._is_complete:
            self._finish()
        elif self._status == 0 and self._received_bytes > MAX_HEAD_BYTES:
            self._fail(TransportFailure.BAD_ANSWER, HEAD_TOO_LONG)
        elif self._is_too_long():
            self._is_reusable = False
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        if self._asked is not None:
            is_whole = error is None and self._status > 0 and not self._is_framed()
            if is_whole:
                self._finish()
            else:
                detail = NOT_COMPLETE if self._status else ""
                self._fail(TransportFailure.CONNECTION_LOST, detail)
        self.end()
        self._transport = None

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise UnexpectedAnswer

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._status == 0:  # trailers after a body are ignored
            self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status < 100 or self._status == 101:
            raise UnexpectedAnswer

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        if self._status < 200:
            self._expect()  # an interim response (1xx)
            return
        self._is_complete = True
        self._is_reusable = self._parser.should_keep_alive() and self._is_written()

    def _expect(self) -> None:
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._is_complete = False
        self._is_reusable = False

    def _is_written(self) -> bool:
        """Whether the whole request was sent.

        A worker that responded early may not read the rest, and could mistake it for a request.
        """
        return self._transport is not None and self._transport.get_write_buffer_size() == 0

    def _is_framed(self) -> bool:
        """Whether the response has an explicit length, rather than ending with the connection."""
        return b"content-length" in self._headers or b"transfer-encoding" in self._headers

    def _is_too_long(self) -> bool:
        return (
            self._body_bytes > self._most_bytes
            or self._received_bytes > MAX_HEAD_BYTES + MAX_FRAMING * self._most_bytes
        )

    def _finish(self) -> None:
        answer = Answer(
            status=self._status,
            body=b"".join(self._body)[: self._most_bytes],
            is_whole=not self._is_too_long(),
            retry_after=self._header(b"retry-after"),
            location=self._header(b"location"),
        )
        if (keep_alive := self._headers.get(b"keep-alive")) is not None:
            self.max_idle_s = _read_keep_alive(keep_alive)
        self._resolve(answer)
        if self._is_reusable:
            self._owner.release(self)
        else:
            self.end()

    def _header(self, name: bytes) -> str | None:
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    def _fail(self, failure: TransportFailure, detail: str = "") -> None:
        self._resolve(Answer(status=failure, detail=detail))
        self.end()

    def _end_if_cancelled(self, asked: asyncio.Future[Any]) -> None:
        """End the connection if its current request was cancelled."""
        if asked.cancelled() and self._asked is asked:
            self.end()

    def _resolve(self, answer: Answer) -> None:
        asked, read = self._asked, self._read
        self._asked = self._read = None
        self._body = []
        if asked is not None and read is not None and not asked.done():
            try:
                asked.set_result(read(answer))
            except Exception as error:  # noqa: BLE001 - raised where the future is awaited
                asked.set_exception(error)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at_s = self._deadline_s
        self._timer = self._loop.call_at(self._deadline_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._loop.time() < self._deadline_s - TIMER_RESOLUTION_S:
            self._set_timer()
        elif self._asked is not None:
            self._fail(TransportFailure.TIMEOUT)
        else:
            self.end()


def _read_keep_alive(header: bytes) -> float:
    timeout = _KEEP_ALIVE.search(header)
    return math.inf if timeout is None else int(timeout[1]) - KEEP_ALIVE_MARGIN_S


def _explain(error: Exception) -> str:
    """The parser's error. It wraps errors of our callbacks in its own words."""
    cause = error.__context__ or error.__cause__
    if isinstance(error, HttpParserUpgrade) or isinstance(cause, UnexpectedAnswer):
        return UnexpectedAnswer.__doc__ or ""
    return str(error)
