"""The API on a socket.

Invariant: `close` takes no further request, and lets those that have begun end, for as long as
`stop_timeout_ms`.
"""

from typing import Final, Self

from aiohttp import web

from wheelsched.api.connections import Runner
from wheelsched.closing import Closing
from wheelsched.config import ApiConfig

BACKLOG: Final = 1_024


class ApiServer(Closing):
    """A running API, until it is closed."""

    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner

    @classmethod
    async def start(cls, app: web.Application, config: ApiConfig) -> Self:
        """Listen where the configuration says; port 0 is any that is free."""
        runner = Runner(app, config)
        await runner.setup()
        try:
            await web.TCPSite(runner, config.host, config.port, backlog=BACKLOG).start()
        except BaseException:
            await runner.cleanup()
            raise
        return cls(runner)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._runner.addresses[0][:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def close(self) -> None:
        """Answer what has begun, and no more."""
        await self._runner.cleanup()
