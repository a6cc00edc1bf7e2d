"""The API on a socket.

Invariant: `close` takes no further request, and lets those that have begun end, for as long as
`stop_timeout_ms`.
"""

from typing import Final, Self

from aiohttp import web

from wheelsched.closing import Closing
from wheelsched.config import ApiConfig

# More than the API reads, so that it can say itself what is too large.
PARSED_HEADER_BYTES: Final = 64 << 10
PARSED_LINE_BYTES: Final = 16 << 10
BACKLOG: Final = 1_024


class ApiServer(Closing):
    """A running API, until it is closed."""

    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner

    @classmethod
    async def start(cls, app: web.Application, config: ApiConfig) -> Self:
        """Listen where the configuration says; port 0 is any that is free."""
        runner = web.AppRunner(
            app,
            access_log=None,  # every answer has its line already, with its request id
            shutdown_timeout=config.stop_timeout_ms / 1_000,
            max_field_size=PARSED_HEADER_BYTES,
            max_line_size=PARSED_LINE_BYTES,
        )
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
