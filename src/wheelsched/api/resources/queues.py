"""Queues: what workers that pull claim, report and see.

Invariant: every call can be sent again without harm. Without a `WorkSource` each answers 503.
"""

from collections.abc import AsyncIterator
from typing import Final, TypeVar

import msgspec
from aiohttp import web
from msgspec import Raw

from wheelsched.api.http.operation import ApiResponse, Call, NoQuery, Operation
from wheelsched.api.http.websocket import WebSocketConnection, accept
from wheelsched.api.work.claims import ClaimKey, Wanted
from wheelsched.api.work.contents import claim_answer
from wheelsched.api.work.service import WorkService
from wheelsched.core.targets.queue import check_queue
from wheelsched.errors import UpgradeMissing
from wheelsched.ports import Caller
from wheelsched.ports.work import QueueState
from wheelsched.wire.instant import instant_or_none
from wheelsched.wire.queue import (
    ClaimAnswer,
    ClaimRequest,
    GiveBackRequest,
    HeartbeatAnswer,
    HeartbeatItems,
    OutcomeAnswer,
    OutcomeItems,
    QueueAnswer,
    QueuesAnswer,
    read_lease,
    read_wait,
)
from wheelsched.wire.stream import PATH
from wheelsched.wire.strict import read_strictly
from wheelsched.wire.tenant import Scope

MAX_REPORT_BYTES: Final = 8 << 20

_OUTCOMES: Final = msgspec.json.Decoder(OutcomeItems)
_HEARTBEATS: Final = msgspec.json.Decoder(HeartbeatItems)

Read = TypeVar("Read")


class Queues:
    """Operations of workers that pull."""

    def __init__(self, work: WorkService) -> None:
        self._work = work

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/queues",
                summary="List the queues with waiting runs or connected workers",
                scope=Scope.READ,
                other_scopes=(Scope.WORK,),
                handle=self.list_queues,
                response=QueuesAnswer,
            ),
            Operation(
                method="POST",
                path="/queues/{queue}/claim",
                summary="Claim runs of a queue, or wait for some",
                scope=Scope.WORK,
                handle=self.claim,
                body=ClaimRequest,
                response=ClaimAnswer,
                is_repeatable=True,
                is_waiting=True,
            ),
            Operation(
                method="POST",
                path="/queues/{queue}/give-back",
                summary="Give back claimed runs that the worker has not begun",
                description="They go to another worker, and no attempt is counted.",
                scope=Scope.WORK,
                handle=self.give_back,
                body=GiveBackRequest,
                response=list[OutcomeAnswer],
                is_repeatable=True,
            ),
            Operation(
                method="POST",
                path="/runs/outcomes",
                summary="Report the outcomes of up to 1,000 claimed runs",
                scope=Scope.WORK,
                handle=self.finish,
                body=bytes,
                described_body=OutcomeItems,
                max_body_bytes=MAX_REPORT_BYTES,
                response=list[OutcomeAnswer],
                is_repeatable=True,
            ),
            Operation(
                method="POST",
                path="/runs/heartbeats",
                summary="Report that up to 1,000 claimed runs are still being processed",
                scope=Scope.WORK,
                handle=self.heartbeat,
                body=bytes,
                described_body=HeartbeatItems,
                max_body_bytes=MAX_REPORT_BYTES,
                response=list[HeartbeatAnswer],
                is_repeatable=True,
            ),
            Operation(
                method="GET",
                path=PATH,
                summary="Claim and report over a WebSocket, subprotocol wheelsched.pull.v1",
                scope=Scope.WORK,
                handle=self.refuse_without_upgrade,
                upgrade=self.stream,
                response=None,
                status=101,
                is_waiting=True,
            ),
        )

    async def keep(self, _: web.Application) -> AsyncIterator[None]:
        """Looks after the workers while the application runs."""
        async with self._work.running():
            yield

    async def list_queues(self, call: Call[NoQuery, None]) -> ApiResponse:
        states = await self._work.queues(call.caller.tenant_id)
        items = [_queue_answer(state, call.now_us) for state in states]
        return ApiResponse(body=QueuesAnswer(items=items))

    async def claim(self, call: Call[NoQuery, ClaimRequest]) -> ApiResponse:
        request = call.body
        queue = check_queue(call.path["queue"], pointer="/queue")
        wanted = Wanted(
            max_runs=request.max_runs,
            wait_us=read_wait(request.wait, pointer="/wait"),
            lease_us=read_lease(request.lease, pointer="/lease"),
            lost=call.lost,
        )
        key = ClaimKey(call.caller.tenant_id, (queue,), request.worker_id, request.claim_id)
        claimed = await self._work.claim(key, wanted)
        return ApiResponse(body=Raw(claim_answer(claimed.runs, claimed.expires_us)))

    async def give_back(self, call: Call[NoQuery, GiveBackRequest]) -> ApiResponse:
        request = call.body
        queue = check_queue(call.path["queue"], pointer="/queue")
        key = ClaimKey(call.caller.tenant_id, (queue,), request.worker_id, request.claim_id)
        given = await self._work.give_back(key.tenant_id, request.items, lambda each: each == key)
        return ApiResponse(body=given)

    async def finish(self, call: Call[NoQuery, bytes]) -> ApiResponse:
        items = _read(call.body, _OUTCOMES)
        return ApiResponse(body=await self._work.finish(call.caller.tenant_id, items))

    async def heartbeat(self, call: Call[NoQuery, bytes]) -> ApiResponse:
        items = _read(call.body, _HEARTBEATS)
        return ApiResponse(body=await self._work.heartbeat(call.caller.tenant_id, items))

    async def refuse_without_upgrade(self, call: Call[NoQuery, None]) -> ApiResponse:
        raise UpgradeMissing

    async def stream(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        self._work.require()
        websocket = await accept(request)
        connection = WebSocketConnection(websocket, request)
        await self._work.stream(connection, request, caller.tenant_id)
        return websocket


def _queue_answer(state: QueueState, now_us: int) -> QueueAnswer:
    oldest_us = state.oldest_us
    return QueueAnswer(
        queue=state.queue,
        depth=state.depth,
        oldest_at=instant_or_none(oldest_us),
        oldest_age_ms=None if oldest_us is None else max(0, now_us - oldest_us) // 1_000,
        workers=state.workers,
        credits=state.credits,
    )


def _read(body: bytes, decoder: msgspec.json.Decoder[Read]) -> Read:
    """The items of a report. The strict reader, which is slower, explains what is wrong."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_strictly(body, decoder)
