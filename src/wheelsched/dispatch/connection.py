"""One connection to a worker: it carries a request, and then perhaps another.

Invariant: one request is on its way at a time, written at once, and its answer is read within
bounds and by its deadline. Whoever asked hears exactly once. A connection that has more to say than
it was asked, or that may have, carries nothing any more. A request is on one connection only: what
was written there and not answered has failed, for whoever took it may have acted on it.

Nothing is set up for each request but a future. The one timer of a connection is not moved with
every deadline: it rings when an earlier one would have passed, and is then set for the present one.
"""

import asyncio
import math
import re
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from wheelsched.core.outcome import TransportFailure
from wheelsched.dispatch.answer import Answer

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_FRAMING: Final = 8  # bytes to carry one of a body: a chunk of its own takes six
KEEP_ALIVE_MARGIN_S: Final = 1.0  # before a worker closes, by its own word: nothing shall cross it
GRAIN_S: Final = 0.001  # of uvloop's timers
_LOOK: Final = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)  # to put flags together takes as long

HEAD_TOO_LONG: Final = "its headers are too long"
NOT_COMPLETE: Final = "its body was not complete"

_KEEP_ALIVE: Final = re.compile(rb"(?:^|[\s,;])timeout=([0-9]{1,6})(?![0-9])", re.IGNORECASE)


Heard = TypeVar("Heard")


class UnexpectedAnswer(Exception):
    """the worker said something that no request of ours asks for"""


class Keeper(Protocol):
    """Who owns connections."""

    def rest(self, connection: "Connection") -> None:
        """Has a connection that is free for the next request."""

    def forget(self, connection: "Connection") -> None:
        """Has it no longer."""


class Connection(asyncio.Protocol):
    """The protocol of one connection, for httptools' parser as well as for the loop."""

    def __init__(self, keeper: Keeper, line: str, loop: asyncio.AbstractEventLoop) -> None:
        self.line = line  # of the keeper
        self.socket: socket.socket | None = None  # the loop's; only to look at
        self.is_kept = False  # it was at rest before the request at hand
        self.rests_s = math.inf  # how long it may be at rest, as far as its worker says
        self.lost: asyncio.Future[None] = loop.create_future()
        self._keeper = keeper
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
        """Whether it can be asked, as far as anybody knows."""
        return (
            not self._is_ended and self._transport is not None and not self._transport.is_closing()
        )

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come in that the loop has not told of yet.

        Asked of a connection that was at rest: it is the worker's farewell, or for nobody.
        """
        if self.socket is None:
            return True
        try:
            self.socket.recv(1, _LOOK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def ask(
        self, request: bytes, most_bytes: int, deadline_s: float, read: Callable[[Answer], Heard]
    ) -> asyncio.Future[Heard]:
        """Writes a request, and promises what is read of its answer, or of why there is none, by
        the deadline."""
        assert self._asked is None
        asked: asyncio.Future[Heard] = self._loop.create_future()
        asked.add_done_callback(self._told)
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
        """Ends the connection, and what it was asked, when that time of the loop has passed."""
        self._deadline_s = deadline_s
        if self._timer is None or self._rings_at_s > deadline_s:
            self._set_timer()

    def end(self) -> None:
        """Ends the connection now: nobody has anything more to say."""
        if self._is_ended:
            return
        self._is_ended = True
        del self._parser  # which knows us: what is ended is free at once, and no garbage
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        else:
            self.lost.set_result(None)
        self._resolve(Answer(status=TransportFailure.CONNECTION_LOST))
        self._keeper.forget(self)

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._transport.set_write_buffer_limits(high=0)  # uvloop: not at the end of a long turn
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
            self._is_reusable = False  # what came after the answer was wrong
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

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise UnexpectedAnswer

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._status == 0:  # what follows a body says nothing of the answer
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
            self._expect()  # that was only to say that the answer will come
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
        """Whether the request has gone out. A worker that answered before may read no further,
        and would take the rest for a request, or the next one for the rest."""
        return self._transport is not None and self._transport.get_write_buffer_size() == 0

    def _is_framed(self) -> bool:
        """Whether the answer says itself where it ends, and not the end of the connection."""
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
            self.rests_s = _read_keep_alive(keep_alive)
        self._resolve(answer)
        if self._is_reusable:
            self._keeper.rest(self)
        else:
            self.end()

    def _header(self, name: bytes) -> str | None:
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    def _fail(self, failure: TransportFailure, detail: str = "") -> None:
        self._resolve(Answer(status=failure, detail=detail))
        self.end()

    def _told(self, asked: asyncio.Future[Any]) -> None:
        """Whoever asked has heard, or does not want to: then nobody waits for this answer."""
        if asked.cancelled() and self._asked is asked:
            self.end()

    def _resolve(self, answer: Answer) -> None:
        asked, read = self._asked, self._read
        self._asked = self._read = None
        self._body = []
        if asked is not None and read is not None and not asked.done():
            try:
                asked.set_result(read(answer))
            except Exception as error:  # noqa: BLE001 - which is for who asked
                asked.set_exception(error)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at_s = self._deadline_s
        self._timer = self._loop.call_at(self._deadline_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._loop.time() < self._deadline_s - GRAIN_S:
            self._set_timer()
        elif self._asked is not None:
            self._fail(TransportFailure.TIMEOUT)
        else:
            self.end()


def _read_keep_alive(written: bytes) -> float:
    timeout = _KEEP_ALIVE.search(written)
    return math.inf if timeout is None else int(timeout[1]) - KEEP_ALIVE_MARGIN_S


def _explain(error: Exception) -> str:
    """What the parser minds. Of a callback that failed it tells in its own words."""
    cause = error.__context__ or error.__cause__
    if isinstance(error, HttpParserUpgrade) or isinstance(cause, UnexpectedAnswer):
        return UnexpectedAnswer.__doc__ or ""
    return str(error)
