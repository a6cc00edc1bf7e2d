"""The service `SchedulerDispatcher`: handles one call, from its metadata to its answer.

Invariant: as over HTTP, nothing is read or done for a call before its caller is authenticated and
authorized.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, assert_never
from uuid import uuid4

import grpc
import structlog

from wheelsched.api.environment import Environment
from wheelsched.api.grpc.connection import Context, GrpcConnection
from wheelsched.api.grpc.requester import GrpcRequester
from wheelsched.api.grpc.requests import (
    ReturnedRun,
    check_label,
    parse,
    read_max_tasks,
    read_queue_names,
    read_seconds,
    read_update,
    read_wait_us,
)
from wheelsched.api.grpc.statuses import Status, status_of
from wheelsched.api.grpc.tasks import MAX_CLAIM_BYTES, tasks_of
from wheelsched.api.http.access_control import Gate
from wheelsched.api.http.problems import log_failure
from wheelsched.api.work.claims import ClaimKey, Wanted
from wheelsched.api.work.service import WorkService
from wheelsched.errors import CallbackRefused, WorkerSilent
from wheelsched.ports import Caller
from wheelsched.v1 import dispatcher_pb2 as pb
from wheelsched.values.duration import SECOND
from wheelsched.wire.callback import is_callback
from wheelsched.wire.queue import HeartbeatItem, OutcomeItem, read_lease
from wheelsched.wire.tenant import Scope

log = structlog.get_logger("wheelsched.api")

SERVICE: Final = pb.DESCRIPTOR.services_by_name["SchedulerDispatcher"].full_name
LOST: Final = "the run has ended or has a newer attempt"
DEADLINE_SHARE: Final = 0.9  # of the time that the client waits, for a claim to wait


class Dispatcher:
    """Serves the calls of workers."""

    def __init__(self, work: WorkService, gate: Gate, environment: Environment) -> None:
        self._work = work
        self._gate = gate
        self._environment = environment

    @property
    def is_available(self) -> bool:
        """Whether this process hands out runs."""
        return self._work.is_available

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler of the service. Messages are parsed after authentication."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        methods: dict[str, Any] = {
            "ClaimTriggers": unary(self.claim),
            "UpdateAttemptStatus": unary(self.update),
            "Work": stream(self.work),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def claim(self, data: bytes, context: Context) -> bytes:
        async with self._observed("ClaimTriggers", context):
            with self._gate.admission.hold(len(data)):
                caller = await self._admit(_requester(context))
                request = parse(pb.ClaimTriggersRequest.FromString, data, "ClaimTriggersRequest")
                key = _claim_key(request, caller)
                wanted = wanted_of(request, context.time_remaining())
            with self._environment.vitals.waiting_request():
                claimed = await self._work.claim(key, wanted)
            tasks = tasks_of(claimed.runs, caller.tenant_id, claimed.expires_us)
            return pb.ClaimTriggersResponse(tasks=tasks).SerializeToString()

    async def update(self, data: bytes, context: Context) -> bytes:
        async with self._observed("UpdateAttemptStatus", context):
            with self._gate.admission.hold(len(data)):
                caller = await self._admit(_requester(context))
                request = parse(pb.UpdateAttemptRequest.FromString, data, "UpdateAttemptRequest")
                answer = await self._update(read_update(request), caller)
            return answer.SerializeToString()

    async def work(self, _: object, context: Context) -> None:
        async with self._observed("Work", context):
            requester = _requester(context)
            with self._gate.admission.hold(0):
                caller = await self._admit(requester)
            task = asyncio.current_task()
            assert task is not None
            connection = GrpcConnection(context, caller.tenant_id, task.cancel)
            try:
                with self._environment.vitals.waiting_request():
                    await self._work.stream(connection, requester, caller.tenant_id)
            except asyncio.CancelledError:
                if not connection.is_cut:
                    raise
                task.uncancel()
                await connection.settle()
                raise WorkerSilent from None

    async def _admit(self, requester: GrpcRequester) -> Caller:
        if is_callback(requester.headers):
            raise CallbackRefused
        return (await self._gate.access.admit(requester, Scope.WORK)).caller

    async def _update(
        self, item: OutcomeItem | HeartbeatItem | ReturnedRun, caller: Caller
    ) -> pb.UpdateAttemptResponse:
        match item:
            case OutcomeItem():
                (answer,) = await self._work.finish(caller.tenant_id, [item])
                return pb.UpdateAttemptResponse(success=answer.accepted, reason=answer.reason or "")
            case HeartbeatItem():
                (kept,) = await self._work.heartbeat(caller.tenant_id, [item])
                reason = "" if kept.held else LOST
                return pb.UpdateAttemptResponse(
                    success=kept.held, reason=reason, cancel=kept.cancel
                )
            case ReturnedRun():
                (given,) = await self._work.give_back(
                    caller.tenant_id,
                    [item.item],
                    lambda key: (key.worker_id, key.claim_id) == (item.worker_id, item.claim_id),
                )
                return pb.UpdateAttemptResponse(success=given.accepted, reason=given.reason or "")
            case never:
                assert_never(never)

    @asynccontextmanager
    async def _observed(self, method: str, context: Context) -> AsyncIterator[None]:
        """Counts and logs a call; an error becomes its status."""
        clock, vitals = self._environment.clock, self._environment.vitals
        begun_ns = clock.now_ns()
        vitals.in_flight += 1
        failed: Status | None = None
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            failed = status_of(error)
            log_failure(error, failed.http_status)
        finally:
            vitals.in_flight -= 1
        took_us = (clock.now_ns() - begun_ns) // 1_000
        vitals.observe(method, failed.http_status if failed else HTTPStatus.OK.value, took_us)
        code = failed.code if failed else grpc.StatusCode.OK
        log.info("request.answered", method=method, status=code.name, took_us=took_us)
        if failed is not None:
            await context.abort(failed.code, failed.details, failed.metadata)


def _requester(context: Context) -> GrpcRequester:
    return GrpcRequester(context.invocation_metadata(), context.peer())


def _claim_key(request: pb.ClaimTriggersRequest, caller: Caller) -> ClaimKey:
    return ClaimKey(
        caller.tenant_id,
        read_queue_names(request.queues),
        check_label(request.worker_id, field="worker_id"),
        check_label(request.claim_id, field="claim_id", is_required=False) or uuid4().hex,
    )


def wanted_of(request: pb.ClaimTriggersRequest, remaining_s: float | None) -> Wanted:
    """What a claim asks for. It is answered before its client gives up."""
    field = "lease_duration_seconds"
    wait_us = read_wait_us(request)
    if remaining_s is not None:
        wait_us = min(wait_us, int(remaining_s * DEADLINE_SHARE * SECOND))
    return Wanted(
        max_runs=read_max_tasks(request),
        wait_us=wait_us,
        lease_us=read_lease(
            read_seconds(request.lease_duration_seconds, field=field), pointer=field
        ),
        max_bytes=MAX_CLAIM_BYTES,
    )
