"""The stream of a worker over the method `Work`.

Invariant: an error of the stream is the status of the call.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias
from uuid import UUID

import grpc

from wheelsched.api.grpc.statuses import status_of
from wheelsched.api.grpc.stream_messages import read_message, write_message
from wheelsched.api.grpc.tasks import run_messages
from wheelsched.errors import WheelschedError
from wheelsched.ports.work import QueueRun
from wheelsched.v1 import dispatcher_pb2 as pb
from wheelsched.wire import stream as wire

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

SETTLE_S: Final = 30.0  # a dead connection ends earlier, by the pings of HTTP/2


class GrpcConnection:
    """The messages of a stream as protobuf."""

    def __init__(self, context: Context, tenant_id: UUID, cancel: Callable[[], object]) -> None:
        self.is_cut = False
        self._context = context
        self._tenant_id = tenant_id
        self._cancel = cancel
        self._writing: asyncio.Task[None] | None = None

    async def receive(self) -> wire.WorkerMessage | None:
        data = await self._context.read()
        return read_message(data) if isinstance(data, bytes) else None

    async def send(self, message: wire.SchedulerMessage) -> None:
        await self._write(write_message(message))

    async def send_runs(self, runs: Sequence[QueueRun], expires_us: int) -> None:
        for message in run_messages(runs, self._tenant_id, expires_us):
            await self._write(message)

    async def close(self, error: WheelschedError | None) -> None:
        if error is None:
            return  # the call ends when the handler returns
        status = status_of(error)
        with suppress(grpc.aio.AbortError, grpc.aio.BaseError, asyncio.InvalidStateError):
            await self._context.abort(status.code, status.details, status.metadata)

    def cut(self) -> None:
        if not self.is_cut:
            self.is_cut = True
            self._cancel()

    async def settle(self) -> None:
        """Waits for a write in progress: until it ends, gRPC sends no status, and no other end."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=SETTLE_S)

    async def _write(self, message: pb.SchedulerMessage) -> None:
        self._writing = asyncio.ensure_future(self._context.write(message.SerializeToString()))
        self._writing.add_done_callback(_retrieve)
        try:
            await asyncio.shield(self._writing)
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            raise ConnectionResetError(str(error)) from error


def _retrieve(write: asyncio.Task[None]) -> None:
    """Marks an error as seen: no task awaits a write of a stream that was cut."""
    if not write.cancelled():
        write.exception()
