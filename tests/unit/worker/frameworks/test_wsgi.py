"""The worker as a WSGI application: its threads, timeouts and shutdown."""

import asyncio
import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any
from wsgiref.validate import validator

import pytest
from tests.unit.worker.callbacks import batch, element, make_worker, run_id, single

from wheelsched.wire.callback import read_answers
from wheelsched.worker import Run, Worker, WorkerConfig

GENEROUS_S = 60
TOO_LARGE = f"413 {HTTPStatus(413).phrase}"  # which Python has renamed


class Room:
    """A worker whose handler waits until the test releases it."""

    def __init__(self) -> None:
        self.worker = make_worker(config=WorkerConfig(max_body_bytes=1_000, stop_timeout_ms=100))
        self.begun, self.released = threading.Event(), threading.Event()
        self.calls: list[int] = []
        self.worker.job("waits")(self._wait)
        self.worker.job("threads")(self._tell_thread)
        self.threads: set[str] = set()

    def _wait(self, payload: object, run: Run) -> None:
        self.calls.append(run.attempt)
        self.begun.set()
        assert self.released.wait(GENEROUS_S)

    async def _tell_thread(self, payload: object) -> None:
        self.threads.add(threading.current_thread().name)
        await asyncio.sleep(0)


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.released.set()
    room.worker.wsgi.stop()


def call(
    worker: Worker, headers: dict[str, str], body: bytes, **changes: object
) -> tuple[str, dict[str, str], bytes]:
    """One WSGI call, validated by wsgiref on both sides."""
    named = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], *_: object) -> Any:
        started.extend((status, dict(headers)))
        return started.append

    environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "/hooks",
        "PATH_INFO": "",
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **named,
        **changes,
    }
    served = {name: value for name, value in environ.items() if value is not None}
    chunks = validator(worker.wsgi)(served, start_response)
    content = b"".join(chunks)
    chunks.close()  # type: ignore[attr-defined]  # the validator has it
    return started[0], started[1], content


def test_a_call_is_answered_with_the_outcome_of_its_run() -> None:
    worker = make_worker()

    @worker.job("report")
    async def handle(payload: object) -> None:
        raise ValueError("grüße")

    status, headers, body = call(worker, *single())
    assert (status, body) == ("500 Internal Server Error", "ValueError: grüße".encode())
    assert headers["content-length"] == str(len(body))
    assert call(worker, {}, b"{}")[0] == "401 Unauthorized"
    worker.wsgi.stop()


def test_a_batch_is_answered_run_by_run() -> None:
    worker = make_worker()

    @worker.job("report")
    def handle(payload: object) -> None: ...

    status, _, body = call(worker, *batch(element(0), element(1)))
    answers = read_answers(body)
    assert status == "200 OK"
    assert answers is not None
    assert set(answers) == {run_id(0), run_id(1)}
    worker.wsgi.stop()


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"CONTENT_LENGTH": "2000"}, TOO_LARGE),
        ({"CONTENT_LENGTH": None, "wsgi.input_terminated": True}, TOO_LARGE),
        ({"CONTENT_LENGTH": None}, "401 Unauthorized"),  # nobody says where the body ends
        ({"CONTENT_LENGTH": "0"}, "401 Unauthorized"),
    ],
)
def test_a_body_is_read_as_far_as_it_may_be_long(
    room: Room, environ: dict[str, object], status: str
) -> None:
    answered, _, _ = call(room.worker, {}, b"x" * 2_000, **environ)
    assert answered == status


def test_a_content_length_that_is_not_a_number_is_refused(room: Room) -> None:
    environ = {"CONTENT_LENGTH": "many", "wsgi.input": io.BytesIO()}
    started: list[str] = []
    room.worker.wsgi(environ, lambda status, *_: started.append(status))  # type: ignore[arg-type]
    assert started == ["400 Bad Request"]


def test_all_calls_share_one_loop_whatever_thread_they_come_from(room: Room) -> None:
    def send(number: int) -> str:
        return call(room.worker, *single(number=number, job_name="threads"))[0]

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(send, range(50))) == {"200 OK"}
    assert room.threads == {"wheelsched-loop"}


def test_a_thread_waits_no_longer_than_the_sender_and_the_run_goes_on(room: Room) -> None:
    short = {"wheelsched-timeout-ms": "100"}
    status, headers, _ = call(room.worker, *single(job_name="waits", headers=short))
    assert (status, headers["retry-after"]) == ("503 Service Unavailable", "1")
    room.released.set()
    again = {"wheelsched-attempt": "2", "wheelsched-timeout-ms": "60000"}
    assert call(room.worker, *single(job_name="waits", headers=again))[0] == "200 OK"
    assert room.calls == [1]


def test_stopping_fails_unfinished_runs_and_refuses_new_ones(room: Room) -> None:
    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(call, room.worker, *single(job_name="waits"))
        assert room.begun.wait(GENEROUS_S)
        room.worker.wsgi.stop()
        status, _, body = sent.result(GENEROUS_S)
    assert status == "503 Service Unavailable"
    assert body == b"the worker stopped before the run ended"
    assert call(room.worker, *single(number=1))[0] == "503 Service Unavailable"
    assert "wheelsched-loop" not in {each.name for each in threading.enumerate()}


def test_stopping_twice_or_before_the_first_call_is_nothing() -> None:
    worker = make_worker()
    worker.wsgi.stop()
    worker.wsgi.stop()
    assert call(worker, *single())[0] == "503 Service Unavailable"
