"""Admission control: limits concurrent requests and the memory of their bodies.

Invariant: there are never more than `max_in_flight` requests, and their bodies never exceed
`max_held_bytes` in total. Further requests get `ApiBusy` before anything is read.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from aiohttp import web

from wheelsched.api.http.operation import Operation
from wheelsched.config import ApiConfig
from wheelsched.errors import ApiBusy


class Admission:
    """Counts admitted requests and the bytes reserved for their bodies."""

    def __init__(self, config: ApiConfig) -> None:
        self._config = config
        self._requests = 0
        self._held_bytes = 0

    def take(self, operation: Operation, request: web.BaseRequest) -> AbstractContextManager[None]:
        """Admits one request for the duration of the block, or raises `ApiBusy`."""
        return self.hold(_size(operation, request))

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Admits one request with a body of this size, in the same way."""
        is_full = self._requests >= self._config.max_in_flight
        # A single request is always admitted, even if its body alone exceeds the limit.
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
    """The maximum number of body bytes that will be read."""
    if not request.can_read_body:
        return 0
    limit = operation.max_body_bytes
    return limit if request.content_length is None else min(request.content_length, limit)
