"""Serves the receiver as a WSGI application, for Flask, Django and other sync frameworks.

Invariant: the worker runs on one event loop in its own thread. The server's threads only wait, and
never longer than the sender of the request.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wheelsched.config import WorkerConfig
from wheelsched.values.duration import SECOND
from wheelsched.worker.answer import Answer, refuse
from wheelsched.worker.delivery import Delivery
from wheelsched.worker.receiver import Receiver

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

Result = TypeVar("Result")

STOP_MARGIN_S: Final = 30.0  # after `stop_timeout_ms`, for cancelled handlers and last reports
JOIN_S: Final = 5.0
CHUNK_BYTES: Final = 64 * 1024


class LoopThread:
    """An event loop in a thread. It starts on first use, so after the server has forked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_ended = False

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def run(self, make: Callable[[], Coroutine[Any, Any, Result]], timeout_s: float) -> Result:
        """Run a coroutine and wait for its result. After a `TimeoutError` it continues to run.

        Raises `CancelledError` if the loop has ended, or ends before the coroutine.
        """
        with self._lock:
            if self._is_ended:
                raise CancelledError
            future = asyncio.run_coroutine_threadsafe(make(), self._start())
        return future.result(timeout_s)

    def end(self) -> None:
        """End the loop and cancel its running tasks."""
        with self._lock:
            if self._loop is not None and not self._is_ended:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._is_ended = True
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_serve, args=(self._loop,), name="wheelsched-loop", daemon=True
            )
            self._thread.start()
        return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()


class WsgiApplication:
    """The worker as a WSGI application, alone or as a part of another."""

    def __init__(
        self,
        receiver: Receiver,
        stop: Callable[[], Coroutine[Any, Any, None]],
        config: WorkerConfig,
    ) -> None:
        self._receiver = receiver
        self._stop = stop
        self._config = config
        self._thread = LoopThread()

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        answer = self._answer(environ)
        phrase = HTTPStatus(answer.status).phrase
        start_response(f"{answer.status} {phrase}", list(answer.headers.items()))
        return [answer.body]

    def receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Handle a request, for a view of any sync framework.

        A run that exceeds its timeout continues. Its next attempt waits for it, and is answered
        with its outcome.
        """
        named = {name.lower(): value for name, value in headers.items()}
        deliveries = self._receiver.read(named, body)
        if isinstance(deliveries, Answer):
            return deliveries
        try:
            perform = functools.partial(self._receiver.perform, deliveries)
            return self._thread.run(perform, self._timeout_s(deliveries))
        except TimeoutError:
            detail = "the run exceeded its timeout and continues"
            return refuse(HTTPStatus.SERVICE_UNAVAILABLE, detail, 1)
        except CancelledError:
            return refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the worker has stopped", 1)

    def stop(self) -> None:
        """`Worker.stop` for sync code. It also ends the thread of the loop."""
        timeout_s = self._config.stop_timeout_ms / 1_000 + STOP_MARGIN_S
        try:
            if self._thread.is_started:
                self._thread.run(self._stop, timeout_s)
        except CancelledError:
            pass  # already stopped
        finally:
            self._thread.end()

    def _answer(self, environ: "WSGIEnvironment") -> Answer:
        try:
            body = _read_body(environ, self._receiver.max_body_bytes + 1)
        except ValueError:
            return refuse(HTTPStatus.BAD_REQUEST, "the Content-Length header is not a number")
        return self.receive(_headers(environ), body)

    def _timeout_s(self, deliveries: Delivery | list[Delivery]) -> float:
        each = [deliveries] if isinstance(deliveries, Delivery) else deliveries
        default_us = self._config.timeout_ms * 1_000
        return max((one.timeout_us or default_us for one in each), default=default_us) / SECOND


def _headers(environ: "WSGIEnvironment") -> dict[str, str]:
    return {
        name.removeprefix("HTTP_").replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }


def _read_body(environ: "WSGIEnvironment", most_bytes: int) -> bytes:
    """The body, up to `most_bytes`."""
    if length := environ.get("CONTENT_LENGTH"):
        left = min(int(length), most_bytes)
    else:  # without a length, only some servers mark the end of the body
        left = most_bytes if environ.get("wsgi.input_terminated") else 0
    chunks = []
    while left > 0 and (chunk := environ["wsgi.input"].read(min(left, CHUNK_BYTES))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
