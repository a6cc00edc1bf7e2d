"""The stream of a worker over a WebSocket, subprotocol `wheelsched.pull.v1`.

Invariant: a stream that ends because of an error says which one in its last message.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, hdrs, web
from msgspec import Raw

from wheelsched.api.http.problems import problem_of
from wheelsched.api.work.contents import run_frames
from wheelsched.errors import ApiStopping, InvalidField, UpgradeMissing, WheelschedError
from wheelsched.ports.work import QueueRun
from wheelsched.wire import stream as wire
from wheelsched.wire.strict import read_strictly

CLOSE_S: Final = 5.0


def is_upgrade(request: web.BaseRequest) -> bool:
    """Whether a request asks for a WebSocket."""
    return request.headers.get(hdrs.UPGRADE, "").lower() == "websocket"


async def accept(request: web.Request) -> web.WebSocketResponse:
    """The WebSocket of a request, or `UpgradeMissing`."""
    websocket = web.WebSocketResponse(
        protocols=[wire.SUBPROTOCOL],
        compress=False,
        max_msg_size=wire.MAX_MESSAGE_BYTES,
        timeout=CLOSE_S,
    )
    ready = websocket.can_prepare(request)
    if not ready.ok or ready.protocol != wire.SUBPROTOCOL:
        raise UpgradeMissing
    await websocket.prepare(request)
    return websocket


class WebSocketConnection:
    """The messages of a stream as JSON in text frames."""

    def __init__(self, websocket: web.WebSocketResponse, request: web.Request) -> None:
        self._websocket = websocket
        self._request = request

    async def receive(self) -> wire.WorkerMessage | None:
        message = await self._websocket.receive()
        if message.type is WSMsgType.TEXT:
            return _decode(message.data)
        if message.type is WSMsgType.BINARY:
            raise InvalidField("expected a text frame")
        return None

    async def send(self, message: wire.SchedulerMessage) -> None:
        await self._websocket.send_frame(wire.encode(message), WSMsgType.TEXT)

    async def send_runs(self, runs: Sequence[QueueRun], expires_us: int) -> None:
        for frame in run_frames(runs, expires_us):
            await self._websocket.send_frame(frame, WSMsgType.TEXT)

    async def close(self, error: WheelschedError | None) -> None:
        code = WSCloseCode.OK
        match error:
            case None:
                pass
            case ApiStopping():  # it was told by `goodbye`
                code = WSCloseCode.GOING_AWAY
            case _:
                problem = problem_of(error)
                await self.send(wire.Refused(problem=Raw(msgspec.json.encode(problem))))
                is_ours = problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR
                code = WSCloseCode.TRY_AGAIN_LATER if is_ours else WSCloseCode.POLICY_VIOLATION
        await self._websocket.close(code=code)

    def cut(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


def _decode(text: str) -> wire.WorkerMessage:
    try:
        return wire.worker_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return read_strictly(text.encode("utf-8", "replace"), wire.worker_decoder)
