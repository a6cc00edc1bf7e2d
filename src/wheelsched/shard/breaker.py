"""Fire: the breaker of one origin of one tenant, so that a target that fails waits by itself.

Invariant: while it is open nothing is sent, and while it is half open one request at a time is.
What was sent before it opened says nothing about the target of now: only the probe decides.
"""

from enum import StrEnum

from wheelsched.config import BreakerConfig
from wheelsched.core.duration import MILLISECOND


class BreakerState(StrEnum):
    CLOSED = "closed"  # everything goes
    OPEN = "open"  # nothing goes
    HALF_OPEN = "half_open"  # one request goes, the probe, and decides


class Breaker:
    """Opens after so many failures in a row, for a wait that doubles until something succeeds."""

    __slots__ = ("_config", "_failures", "_probe", "_wait_us", "open_until_us", "state")

    def __init__(self, config: BreakerConfig) -> None:
        self._config = config
        self._failures = 0
        self._wait_us = config.open_initial_ms * MILLISECOND
        self._probe: object | None = None
        self.state = BreakerState.CLOSED
        self.open_until_us = 0

    @property
    def is_fresh(self) -> bool:
        """Whether it remembers nothing, so that a new one would do as well."""
        return self.state is BreakerState.CLOSED and self._failures == 0

    @property
    def may_send(self) -> bool:
        if self.state is BreakerState.HALF_OPEN:
            return self._probe is None
        return self.state is BreakerState.CLOSED

    def half_open(self, now_us: int) -> None:
        """Lets a probe through, the wait being over."""
        assert self.state is BreakerState.OPEN
        assert now_us >= self.open_until_us
        self.state = BreakerState.HALF_OPEN

    def sent(self, request: object) -> None:
        """Notes that a request goes out."""
        assert self.may_send
        if self.state is BreakerState.HALF_OPEN:
            self._probe = request

    def ended(self, request: object, now_us: int, *, failed: bool | None) -> None:
        """Notes how a request ended; None when it never reached the target."""
        if self.state is BreakerState.CLOSED:
            self._count(now_us, failed=failed)
        elif request is self._probe:
            self._probe = None
            self._judge(now_us, failed=failed)

    def _count(self, now_us: int, *, failed: bool | None) -> None:
        if failed:
            self._failures += 1
            if self._failures >= self._config.failures:
                self._open(now_us)
        elif failed is not None:
            self._failures = 0

    def _judge(self, now_us: int, *, failed: bool | None) -> None:
        if failed:
            longest_us = self._config.open_max_ms * MILLISECOND
            self._wait_us = min(self._wait_us * 2, longest_us)
            self._open(now_us)
        elif failed is not None:
            self.state = BreakerState.CLOSED
            self._failures = 0
            self._wait_us = self._config.open_initial_ms * MILLISECOND

    def _open(self, now_us: int) -> None:
        self.state = BreakerState.OPEN
        self.open_until_us = now_us + self._wait_us
