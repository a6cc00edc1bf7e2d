"""Probes of the API process: liveness, readiness, metrics and the OpenAPI document.

Invariant: no probe needs a token, waits longer than `READY_TIMEOUT_S`, or reveals anything about a
tenant.
"""

import asyncio
from typing import Final

import structlog
from aiohttp import web

from wheelsched.api.environment import Environment
from wheelsched.core.overdue import Lateness, lateness_of
from wheelsched.core.partition import PARTITIONS
from wheelsched.errors import StoreError
from wheelsched.ports import LeaseStore, TimerStore

log = structlog.get_logger("wheelsched.api")

READY_TIMEOUT_S: Final = 2
LATENESS_NS: Final = 5_000_000_000  # how long a reading is cached
NO_DATABASE: Final = f"the database did not answer within {READY_TIMEOUT_S} s, or refused"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Probes:
    """`/healthz`, `/readyz`, `/metrics` and `/openapi.json`."""

    def __init__(
        self,
        leases: LeaseStore,
        timers: TimerStore,
        environment: Environment,
        openapi: bytes,
    ) -> None:
        self._leases = leases
        self._timers = timers
        self._lateness = Lateness()
        self._lateness_until_ns = 0
        self._environment = environment
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
        """Ready if the database answers and due timers are armed."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._leases.read_clock(self._environment.clock.now_ns)
                late = await self._read_lateness()
        except (StoreError, TimeoutError) as error:
            log.warning("readiness.lost", error=type(error).__name__)
            body = {"state": "unavailable", "detail": NO_DATABASE}
            return web.json_response(body, status=503)
        if late.is_alarming:
            log.warning("arming.late", timer_us=late.timer_us, retry_us=late.retry_us)
            body = {"state": "late", "detail": str(late)}
            return web.json_response(body, status=503)
        return web.json_response({"state": "ready"})

    async def _read_lateness(self) -> Lateness:
        """How overdue unarmed timers and retries are, in all partitions; cached for a few
        seconds."""
        now_ns = self._environment.clock.now_ns()
        if now_ns >= self._lateness_until_ns:
            unarmed = await self._timers.oldest_unarmed(range(PARTITIONS))
            self._lateness = lateness_of(unarmed, self._environment.now_us())
            self._lateness_until_ns = now_ns + LATENESS_NS
        return self._lateness

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._environment.metrics().encode(), headers={"Content-Type": METRICS}
        )

    async def openapi(self, request: web.Request) -> web.Response:
        return web.Response(body=self._openapi, content_type="application/json")
