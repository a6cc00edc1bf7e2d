"""What machines ask about this process: is it alive, is it ready, what does it count?

Invariant: no probe needs a token or waits longer than `READY_TIMEOUT_S`, and none tells anything
of a tenant.
"""

import asyncio
from typing import Final

import structlog
from aiohttp import web

from wheelsched.api.surroundings import Surroundings
from wheelsched.errors import StoreError
from wheelsched.ports import LeaseStore

log = structlog.get_logger("wheelsched.api")

READY_TIMEOUT_S: Final = 2
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Probes:
    """`/healthz`, `/readyz`, `/metrics` and `/openapi.json`."""

    def __init__(self, leases: LeaseStore, surroundings: Surroundings, openapi: bytes) -> None:
        self._leases = leases
        self._surroundings = surroundings
        self._openapi = openapi

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/healthz", self.is_healthy),
            web.get("/readyz", self.is_ready),
            web.get("/metrics", self.metrics),
            web.get("/openapi.json", self.openapi),
        ]

    async def is_healthy(self, request: web.Request) -> web.Response:
        return web.json_response({"state": "healthy"})

    async def is_ready(self, request: web.Request) -> web.Response:
        """Ready is who reaches the database."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._leases.read_clock(self._surroundings.clock.now_ns)
        except (StoreError, TimeoutError) as error:
            log.warning("readiness.lost", error=type(error).__name__)
            raise web.HTTPServiceUnavailable from error
        return web.json_response({"state": "ready"})

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._surroundings.metrics().encode(), headers={"Content-Type": METRICS}
        )

    async def openapi(self, request: web.Request) -> web.Response:
        return web.Response(body=self._openapi, content_type="application/json")
