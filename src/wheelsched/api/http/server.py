"""The API on a listening socket.

Invariant: `close` accepts no further request, and gives running ones `stop_timeout_ms` to end.
"""

from typing import Final, Self

from aiohttp import web

from wheelsched.api.http.connections import Runner
from wheelsched.closing import Closing
from wheelsched.config import ApiConfig

BACKLOG: Final = 1_024


class ApiServer(Closing):
    """A running API, until it is closed."""

    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner

    @classmethod
    async def start(cls, app: web.Application, config: ApiConfig) -> Self:
        """Listens on the configured address; port 0 picks a free one."""
        runner = Runner(app, config)
        try:
            await runner.setup()
            await web.TCPSite(runner, config.host, config.port, backlog=BACKLOG).start()
        except BaseException:
            await runner.cleanup()
            raise
        return cls(runner)

    @property
    def url(self) -> str:
        """The URL that the server listens on."""
        host, port = self._runner.addresses[0][:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def close(self) -> None:
        """Finishes running requests and stops."""
        await self._runner.cleanup()
