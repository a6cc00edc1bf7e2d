"""The probe of a process: liveness, readiness and metrics over HTTP.

Invariant: a response needs no I/O, so a hanging database never makes a process look dead.
`/healthz` only proves that the event loop runs; `/readyz` lists what is missing.
"""

from collections.abc import Callable

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from wheelsched.errors import CallbackRefused
from wheelsched.wire.callback import is_callback


def status_app(registry: CollectorRegistry, missing: Callable[[], list[str]]) -> web.Application:
    """The probe application of a shard; `missing` lists what the shard lacks to be ready."""

    async def healthz(_: web.Request) -> web.Response:
        return _json({"alive": True})

    async def readyz(_: web.Request) -> web.Response:
        lacking = missing()
        body = {"ready": not lacking, "missing": lacking}
        return _json(body, status=503 if lacking else 200)

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    @web.middleware
    async def refuse_callbacks(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_callback(request.headers):
            return _json({"error": str(CallbackRefused())}, status=403)
        return await handler(request)

    app = web.Application(middlewares=[refuse_callbacks])
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app


def _json(body: object, status: int = 200) -> web.Response:
    encoded = msgspec.json.encode(body)
    return web.Response(body=encoded, status=status, content_type="application/json")
