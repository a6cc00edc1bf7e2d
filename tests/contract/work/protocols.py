"""What a worker can do, in each protocol that it may speak."""

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from wheelsched.wire.stream import SUBPROTOCOL

Item = dict[str, Any]
_numbers = itertools.count(1)


class WorkerSide(Protocol):
    """A worker of one protocol. `claim` takes runs, and waits for some if there are none."""

    async def claim(self, max_runs: int = 1, *, wait: str = "30s") -> list[Item]: ...

    async def finish(self, items: Sequence[Item]) -> list[Item]: ...

    async def heartbeat(self, items: Sequence[Item]) -> list[Item]: ...

    async def give_back(self, items: Sequence[Item]) -> None: ...

    async def leave(self) -> None:
        """Ends abruptly, as if the process was killed."""


class PollingWorker:
    """Long polls, over HTTP."""

    def __init__(self, url: str, token: str, queue: str = "billing") -> None:
        self._session = ClientSession(f"{url}/api/v1/", headers=_headers(token))
        self._queue = queue
        self._claim_ids: dict[str, str] = {}  # by run id
        self.worker_id = f"worker-{next(_numbers)}"

    async def claim(self, max_runs: int = 1, *, wait: str = "30s") -> list[Item]:
        body: Item = {
            "worker_id": self.worker_id,
            "claim_id": str(next(_numbers)),
            "max_runs": max_runs,
            "wait": wait,
        }
        answer = await self._post(f"queues/{self._queue}/claim", body)
        runs: list[Item] = answer["runs"]
        self._claim_ids |= {run["run_id"]: body["claim_id"] for run in runs}
        return runs

    async def finish(self, items: Sequence[Item]) -> list[Item]:
        answers: list[Item] = await self._post("runs/outcomes", list(items))
        return answers

    async def heartbeat(self, items: Sequence[Item]) -> list[Item]:
        answers: list[Item] = await self._post("runs/heartbeats", list(items))
        return answers

    async def give_back(self, items: Sequence[Item]) -> None:
        for item in items:
            claim_id = self._claim_ids[item["run_id"]]
            body = {"worker_id": self.worker_id, "claim_id": claim_id, "items": [item]}
            await self._post(f"queues/{self._queue}/give-back", body)

    async def leave(self) -> None:
        await self._session.close()

    async def _post(self, path: str, body: object) -> Any:
        async with self._session.post(path, json=body) as response:
            assert response.status == 200, await response.text()
            return await response.json()


class StreamingWorker:
    """A stream, over a WebSocket. It gives credits when it claims."""

    def __init__(self, url: str, token: str, queue: str = "billing") -> None:
        self._url = f"{url}/api/v1/stream"
        self._session = ClientSession(headers=_headers(token))
        self._websocket: ClientWebSocketResponse | None = None
        self._queue = queue
        self._runs: list[Item] = []
        self.cancelled: list[Item] = []
        self.worker_id = f"worker-{next(_numbers)}"

    async def claim(self, max_runs: int = 1, *, wait: str = "30s") -> list[Item]:
        websocket = await self._connected()
        await send(websocket, type="credits", credits=max_runs)
        while not self._runs:
            await self._receive("runs")
        runs, self._runs = self._runs, []
        return runs

    async def finish(self, items: Sequence[Item]) -> list[Item]:
        return await self._ask("outcomes", items)

    async def heartbeat(self, items: Sequence[Item]) -> list[Item]:
        return await self._ask("heartbeats", items)

    async def give_back(self, items: Sequence[Item]) -> None:
        await send(await self._connected(), type="give_back", items=list(items))

    async def leave(self) -> None:
        if self._websocket is not None:
            connection = self._websocket._response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
        await self._session.close()

    async def _ask(self, kind: str, items: Sequence[Item]) -> list[Item]:
        number = next(_numbers)
        await send(await self._connected(), type=kind, id=number, items=list(items))
        message = await self._receive(kind)
        assert message["id"] == number
        answers: list[Item] = message["items"]
        return answers

    async def _connected(self) -> ClientWebSocketResponse:
        if self._websocket is None:
            self._websocket = await self._session.ws_connect(self._url, protocols=[SUBPROTOCOL])
            await send(
                self._websocket, type="hello", worker_id=self.worker_id, queues=[self._queue]
            )
            await self._receive("welcome")
        return self._websocket

    async def _receive(self, kind: str) -> Item:
        """Reads up to a message of a kind."""
        assert self._websocket is not None
        while True:
            message = await receive(self._websocket)
            self._runs += message.get("runs", [])
            if message["type"] == "cancel":
                self.cancelled += message["items"]
            if message["type"] == kind:
                return message


async def send(websocket: ClientWebSocketResponse, **message: Any) -> None:
    await websocket.send_str(msgspec.json.encode(message).decode())


async def receive(websocket: ClientWebSocketResponse) -> Item:
    frame = await websocket.receive(timeout=60)
    assert frame.type is WSMsgType.TEXT, frame
    message: Item = msgspec.json.decode(frame.data)
    return message


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
