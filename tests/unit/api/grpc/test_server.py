"""The gRPC server: its address, health and reflection."""

import asyncio
import time
from typing import Any

import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.api import serve
from tests.contract.work.conftest import Scheduler
from tests.contract.work.grpc_protocols import Calls
from tests.unit.api.grpc.test_calls import refused
from tests.waiting import WAIT_LIMIT_S

from wheelsched.config import GrpcConfig
from wheelsched.errors import AddressTaken
from wheelsched.testing import MemoryStore

SERVICE = "wheelsched.v1.SchedulerDispatcher"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # no settings
NEVER_MS = 3_600_000


async def test_health_needs_no_token(scheduler: Scheduler) -> None:
    calls = Calls(scheduler.api.grpc, None)
    stub: Any = health_pb2_grpc.HealthStub(calls.channel)
    for service in ("", SERVICE):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    error = await refused(stub.Check(health_pb2.HealthCheckRequest(service="another")))
    assert error.code() is StatusCode.NOT_FOUND
    await calls.close()


async def test_health_shows_that_a_process_hands_out_no_runs() -> None:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    async with serve(store, store, grpc=GrpcConfig(port=0)) as api:
        calls = Calls(api.grpc, None)
        stub: Any = health_pb2_grpc.HealthStub(calls.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        await calls.close()


async def test_health_shows_that_a_process_is_stopping(scheduler: Scheduler) -> None:
    calls = Calls(scheduler.api.grpc, None)
    stub: Any = health_pb2_grpc.HealthStub(calls.channel)
    watching = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
    assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
    await scheduler.api.stop()
    assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    await calls.close()


@pytest.mark.parametrize(
    ("config", "greeting"),
    [
        (GrpcConfig(port=0, ping_ms=NEVER_MS, handshake_ms=200), b""),
        (GrpcConfig(port=0, ping_ms=NEVER_MS, idle_ms=200), PREFACE),
    ],
)
async def test_a_connection_without_calls_is_closed(config: GrpcConfig, greeting: bytes) -> None:
    """There is no limit of connections per address, so one that is not used must not stay."""
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    async with serve(store, store, grpc=config) as api:
        host, port = api.grpc.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(greeting)
        async with asyncio.timeout(WAIT_LIMIT_S):
            while await reader.read(1_000):
                pass
        writer.close()


async def test_reflection_describes_the_service(scheduler: Scheduler, calls: Calls) -> None:
    channel: Any = calls.channel
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    request: Any = reflection_pb2.ServerReflectionRequest
    stream = stub.ServerReflectionInfo()
    await stream.write(request(list_services=""))
    listed = (await stream.read()).list_services_response.service
    assert SERVICE in [each.name for each in listed]
    await stream.write(request(file_containing_symbol=SERVICE))
    described = (await stream.read()).file_descriptor_response.file_descriptor_proto
    assert b"wheelsched/v1/dispatcher.proto" in described[0]
    await stream.done_writing()


async def test_an_address_that_is_taken_is_named(scheduler: Scheduler) -> None:
    port = int(scheduler.api.grpc.rpartition(":")[2])
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    with pytest.raises(AddressTaken, match=f"cannot listen on 127.0.0.1:{port} for gRPC"):
        async with serve(store, store, grpc=GrpcConfig(port=port)):
            pass
