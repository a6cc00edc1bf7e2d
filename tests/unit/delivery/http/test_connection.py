import asyncio
import gc
import math
import weakref
from collections.abc import Callable

import pytest

from wheelsched.core.outcome import TransportFailure
from wheelsched.delivery.http.connection import MAX_HEAD_BYTES, Connection
from wheelsched.delivery.http.response import Answer

MOST_BYTES = 1_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Wire(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_aborted = False
        self.unwritten = 0

    def get_write_buffer_size(self) -> int:
        return self.unwritten

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


class Kept:
    """An owner that records released and discarded connections."""

    def __init__(self) -> None:
        self.resting: list[Connection] = []
        self.forgotten: list[Connection] = []

    def release(self, connection: Connection) -> None:
        self.resting.append(connection)

    def discard(self, connection: Connection) -> None:
        self.forgotten.append(connection)


class Line:
    """A connection, its transport, and one request in flight."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.kept = Kept()
        self.wire = Wire()
        self.connection = Connection(self.kept, "http://example.org:80", self.loop)
        self.connection.connection_made(self.wire)
        self.ask()

    def ask(self, *, within_s: float = 60) -> None:
        deadline_s = self.loop.time() + within_s
        self.asked = self.connection.ask(b"request", MOST_BYTES, deadline_s, lambda answer: answer)

    def hear(self, *pieces: bytes) -> None:
        for piece in pieces:
            if not self.wire.is_aborted:
                self.connection.data_received(piece)

    @property
    def answer(self) -> Answer:
        return self.asked.result()

    @property
    def is_resting(self) -> bool:
        return bool(self.kept.resting)


@pytest.fixture
async def line() -> Line:
    return Line()


def in_bytes(answer: bytes) -> list[bytes]:
    return [answer[place : place + 1] for place in range(len(answer))]


ANSWERS = [
    (OK, 200, b"ok", True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
    (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + OK,
        200,
        b"ok",
        True,
    ),
    (
        (
            b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2;a=b\r\nou\r\n1\r\nt\r\n0\r\nA: b\r\n\r\n"
        ),
        500,
        b"out",
        True,
    ),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        True,
    ),
]


@pytest.mark.parametrize(("answer", "status", "body", "is_resting"), ANSWERS)
@pytest.mark.parametrize("cut", [lambda answer: [answer], in_bytes], ids=["whole", "in bytes"])
async def test_an_answer_is_read_however_it_comes(
    line: Line,
    cut: Callable[[bytes], list[bytes]],
    answer: bytes,
    status: int,
    body: bytes,
    is_resting: bool,
) -> None:
    line.hear(*cut(answer))
    assert line.answer == Answer(status=status, body=body)
    assert line.is_resting is is_resting
    assert line.wire.is_aborted is not is_resting
    assert line.wire.written == [b"request"]


async def test_an_answer_without_an_end_of_its_own_ends_with_the_connection(line: Line) -> None:
    line.hear(b"HTTP/1.1 200 OK\r\n\r\nout ", b"of paper")
    assert not line.asked.done()
    line.connection.connection_lost(None)
    assert line.answer == Answer(status=200, body=b"out of paper")
    assert not line.is_resting


@pytest.mark.parametrize(
    ("heard", "error"),
    [
        (b"", None),
        (b"HTTP/1.1 200 OK\r\n", None),
        (b"HTTP/1.1 100 Continue\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n", None),
        (b"HTTP/1.1 200 OK\r\n\r\nout ", ConnectionResetError()),
    ],
)
async def test_an_answer_that_breaks_off_is_none(
    line: Line, heard: bytes, error: Exception | None
) -> None:
    if heard:
        line.hear(heard)
    line.connection.connection_lost(error)
    assert line.answer.status is TransportFailure.CONNECTION_LOST
    assert line.kept.forgotten == [line.connection]


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\nb",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 000 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    ],
)
async def test_an_invalid_response_is_a_failure(line: Line, answer: bytes) -> None:
    line.hear(answer)
    assert line.answer.status is TransportFailure.BAD_ANSWER
    assert line.answer.detail
    assert line.wire.is_aborted


@pytest.mark.parametrize("excess", [b"H", OK, b"garbage"])
async def test_data_after_a_response_ends_the_connection(line: Line, excess: bytes) -> None:
    line.hear(OK + excess)
    assert line.answer == Answer(status=200, body=b"ok")
    assert line.wire.is_aborted
    assert not line.is_resting


@pytest.mark.parametrize("excess", [b"\r\n", OK, b"garbage"])
async def test_data_on_an_idle_connection_ends_it(line: Line, excess: bytes) -> None:
    line.hear(OK)
    assert line.is_resting
    line.hear(excess)
    assert line.wire.is_aborted
    assert line.kept.forgotten == [line.connection]


async def test_the_next_answer_is_not_the_one_before(line: Line) -> None:
    line.hear(b"HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 3\r\n\r\nout")
    assert line.answer == Answer(status=503, body=b"out", retry_after="7")
    line.ask()
    line.hear(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert line.answer == Answer(status=200)


@pytest.mark.parametrize(
    "piece",
    [b"A: " + b"b" * 1_000 + b"\r\n", b"b" * 1_000],
    ids=["headers", "one header"],
)
async def test_a_head_has_a_bound(line: Line, piece: bytes) -> None:
    line.hear(b"HTTP/1.1 200 OK\r\nB: ", *[piece] * (MAX_HEAD_BYTES // 1_000 + 1))
    assert line.answer.status is TransportFailure.BAD_ANSWER
    assert line.answer.detail == "its headers are too long"


async def test_interim_responses_are_limited(line: Line) -> None:
    line.hear(*[b"HTTP/1.1 103 Early Hints\r\n\r\n"] * MAX_HEAD_BYTES)
    assert line.answer.status is TransportFailure.BAD_ANSWER


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"Content-Length: 1000000", b"x" * 100),
        (b"Connection: close", b"x" * 100),
        (b"Transfer-Encoding: chunked", b"64\r\n" + b"x" * 100 + b"\r\n"),
        (b"Transfer-Encoding: chunked", b"1;" + b"a" * 1_000 + b"\r\nx\r\n"),
    ],
)
async def test_a_body_has_a_bound(line: Line, head: bytes, piece: bytes) -> None:
    line.hear(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n", *[piece] * 1_000)
    assert line.answer.status == 200
    assert not line.answer.is_whole
    assert line.answer.body == b"x" * len(line.answer.body)
    assert len(line.answer.body) <= MOST_BYTES
    assert line.wire.is_aborted


async def test_chunks_of_one_byte_are_within_the_bound(line: Line) -> None:
    chunks = [b"1\r\nx\r\n"] * MOST_BYTES
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    line.hear(head, *chunks, b"0\r\n\r\n")
    assert line.answer == Answer(status=200, body=b"x" * MOST_BYTES)


async def test_trailers_have_a_bound(line: Line) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: "
    line.hear(head, *[b"x" * 1_000] * 1_000)
    assert line.answer.status == 200
    assert line.wire.is_aborted


async def test_trailers_do_not_count_as_headers(line: Line) -> None:
    line.hear(
        b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\nRetry-After: 7\r\nKeep-Alive: timeout=1\r\n\r\n"
    )
    assert line.answer == Answer(status=503)
    assert line.connection.max_idle_s == math.inf


async def test_an_answer_before_the_request_was_written_is_the_last(line: Line) -> None:
    line.wire.unwritten = 1
    line.hear(OK)
    assert line.answer == Answer(status=200, body=b"ok")
    assert line.wire.is_aborted
    assert not line.is_resting


async def test_the_deadline_ends_it(line: Line) -> None:
    line.hear(OK)
    line.ask(within_s=-1)
    assert await line.asked == Answer(status=TransportFailure.TIMEOUT)
    assert line.wire.is_aborted


async def test_a_later_deadline_is_kept_though_an_earlier_timer_rings(line: Line) -> None:
    line.hear(OK)
    line.connection.watch(line.loop.time() - 1)
    line.ask(within_s=60)
    turn = line.loop.create_future()
    line.loop.call_later(0, line.loop.call_soon, turn.set_result, None)
    await turn
    line.hear(OK)
    assert line.answer.status == 200


async def test_a_connection_does_not_rest_for_ever(line: Line) -> None:
    line.hear(OK)
    line.connection.watch(line.loop.time() - 1)
    turn = line.loop.create_future()
    line.loop.call_later(0, line.loop.call_soon, turn.set_result, None)
    await turn
    assert line.wire.is_aborted
    assert line.kept.forgotten == [line.connection]


@pytest.mark.parametrize(
    ("keep_alive", "rests_s"),
    [
        (b"timeout=5", 4),
        (b"max=100, Timeout=75", 74),
        (b"timeout=1", 0),
        (b"timeout=0", -1),
        (b"max=100", math.inf),
        (b"idle_timeout=5", math.inf),
        (b"timeout=banana", math.inf),
        (b"timeout=99999999999999999999", math.inf),
        (b"", math.inf),
    ],
)
async def test_a_worker_says_how_long_a_connection_rests(
    line: Line, keep_alive: bytes, rests_s: float
) -> None:
    line.hear(OK.replace(b"\r\n\r\n", b"\r\nKeep-Alive: " + keep_alive + b"\r\n\r\n"))
    assert line.answer.status == 200
    assert line.connection.max_idle_s == rests_s


async def test_ending_a_connection_fails_its_request(line: Line) -> None:
    line.connection.end()
    assert line.answer.status is TransportFailure.CONNECTION_LOST
    line.ask()
    assert line.answer.status is TransportFailure.CONNECTION_LOST
    assert line.wire.written == [b"request"]


async def test_a_cancelled_request_ends_the_connection(line: Line) -> None:
    line.asked.cancel()
    line.hear(OK)
    assert line.wire.is_aborted
    assert not line.is_resting


async def test_cancelling_before_the_response_ends_the_connection(line: Line) -> None:
    line.asked.cancel()
    await asyncio.sleep(0)
    assert line.wire.is_aborted
    assert line.kept.forgotten == [line.connection]


async def test_a_connection_ended_before_it_connects_is_closed() -> None:
    connection = Connection(Kept(), "http://example.org:80", asyncio.get_running_loop())
    connection.end()
    assert connection.lost.done()
    wire = Wire()
    connection.connection_made(wire)
    assert wire.is_aborted
    assert not connection.is_open
    connection.connection_lost(None)


async def test_a_lost_connection_is_freed_without_the_garbage_collector() -> None:
    """A worker that closes after each response needs a connection for each request."""
    gc.disable()
    try:
        line = Line()
        line.hear(OK.replace(b"Content-Length", b"Connection: close\r\nContent-Length"))
        line.connection.connection_lost(None)
        assert (await line.asked).status == 200
        connection = weakref.ref(line.connection)
        line.kept.forgotten.clear()
        del line.connection, line.asked
        await asyncio.sleep(0)
        assert connection() is None
    finally:
        gc.enable()
