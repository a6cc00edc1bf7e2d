"""Places: how many requests are in hand at once, and how much of memory their bodies take.

Invariant: never more than `max_in_flight` requests, and their bodies are never larger together than
`max_held_bytes`. Whoever comes then is told to come again, before anything is read.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from wheelsched.api.operation import Operation
from wheelsched.config import ApiConfig
from wheelsched.errors import ApiBusy


class Places:
    """What is in hand."""

    def __init__(self, config: ApiConfig) -> None:
        self._config = config
        self._requests = 0
        self._held_bytes = 0

    @contextmanager
    def take(self, operation: Operation, request: web.BaseRequest) -> Iterator[None]:
        """A place for one request, or `ApiBusy`."""
        size = _size(operation, request)
        is_full = self._requests >= self._config.max_in_flight
        # One alone is always taken: it may be larger than the bound for all.
        is_heavy = self._held_bytes > 0 and self._held_bytes + size > self._config.max_held_bytes
        if is_full or is_heavy:
            raise ApiBusy
        self._requests += 1
        self._held_bytes += size
        try:
            yield
        finally:
            self._requests -= 1
            self._held_bytes -= size


def _size(operation: Operation, request: web.BaseRequest) -> int:
    """The most that is going to be read of a request."""
    if not request.can_read_body:
        return 0
    limit = operation.max_body_bytes
    return limit if request.content_length is None else min(request.content_length, limit)
