"""Adds the gRPC server to the API: both start, and stop, together."""

from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from wheelsched.api.environment import Environment
from wheelsched.api.grpc.dispatcher import Dispatcher
from wheelsched.api.grpc.server import GrpcServer
from wheelsched.api.http.access_control import Gate
from wheelsched.api.http.connections import LEAVE
from wheelsched.api.work.service import WorkService
from wheelsched.config import ApiConfig

GRPC: Final = web.AppKey("grpc", GrpcServer)


def add_grpc(
    app: web.Application,
    work: WorkService,
    gate: Gate,
    environment: Environment,
    config: ApiConfig,
) -> None:
    """The calls of workers pass the same gate and reach the same service as requests by HTTP."""
    server = GrpcServer(Dispatcher(work, gate, environment), config)

    async def serve(_: web.Application) -> AsyncIterator[None]:
        try:
            await server.start()
            yield
        finally:
            await server.close()

    async def leave() -> None:
        await server.leave()
        await work.stop()

    app[GRPC] = server
    app[LEAVE] = leave
    app.cleanup_ctx.append(serve)
