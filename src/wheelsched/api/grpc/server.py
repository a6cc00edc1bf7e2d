"""The gRPC server of workers that pull, with health and reflection.

Invariant: `leave` accepts no further call. Calls that run have `stop_timeout_ms` to end.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from msgspec.structs import replace

from wheelsched.api.grpc.dispatcher import SERVICE, Dispatcher
from wheelsched.config import ApiConfig, GrpcConfig
from wheelsched.errors import AddressTaken

log = structlog.get_logger("wheelsched.api")

MAX_METADATA_BYTES: Final = 16 << 10
MIN_PING_MS: Final = 5_000  # clients that ping more often are disconnected
END_S: Final = 1.0  # for calls that are left when all workers have gone

Health = health_pb2.HealthCheckResponse


class GrpcServer:
    """A gRPC server, from `start` to `close`."""

    def __init__(self, dispatcher: Dispatcher, config: ApiConfig) -> None:
        assert config.grpc is not None
        self.address = ""  # HOST:PORT once it listens
        self._config = config.grpc
        self._max_connections = config.max_connections
        self._stop_s = config.stop_timeout_ms / 1_000
        self._dispatcher = dispatcher
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listens; port 0 picks a free one."""
        self._server = server = grpc.aio.server(
            options=_options(self._config, self._max_connections),
            maximum_concurrent_rpcs=self._config.max_calls,
        )
        server.add_generic_rpc_handlers((self._dispatcher.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        try:
            port = server.add_insecure_port(self._config.address)
        except RuntimeError as error:
            raise AddressTaken(
                f"cannot listen on {self._config.address} for gRPC; choose another address"
            ) from error
        is_serving = self._dispatcher.is_available
        await self._health.set(SERVICE, Health.SERVING if is_serving else Health.NOT_SERVING)
        await server.start()
        self.address = replace(self._config, port=port).address
        log.info("grpc.listening", address=self.address)

    async def leave(self) -> None:
        """Accepts no further call; clients see that by their health checks, too."""
        if self._server is not None and self._stopping is None:
            await self._health.enter_graceful_shutdown()
            self._stopping = asyncio.create_task(self._server.stop(self._stop_s))

    async def close(self) -> None:
        """Ends the calls that are left."""
        if self._server is not None:
            await self.leave()
            await self._server.stop(END_S)
        if self._stopping is not None:
            await asyncio.wait([self._stopping])


def _options(config: GrpcConfig, max_connections: int) -> Sequence[tuple[str, Any]]:
    return (
        ("grpc.so_reuseport", 0),  # a second process on the same port is a mistake
        ("grpc.max_receive_message_length", config.max_message_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.max_allowed_incoming_connections", max_connections),
        ("grpc.max_concurrent_streams", config.max_calls_per_connection),
        ("grpc.server_handshake_timeout_ms", config.handshake_ms),
        ("grpc.max_connection_idle_ms", config.idle_ms),
        ("grpc.keepalive_time_ms", config.ping_ms),
        ("grpc.keepalive_timeout_ms", config.ping_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_MS),
    )
