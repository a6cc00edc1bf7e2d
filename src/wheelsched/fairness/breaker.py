"""Circuit breakers: a failing target delays only its own requests.

An origin has a breaker that counts missing responses. A job has one that counts failed responses: a
failing handler must not hold up the other jobs of its worker.

Invariant: while a breaker is not closed, it lets one request through at a time, a probe, and waits
twice as long before each further one. Only probes close it: a request that was sent before it
opened says nothing about the target now.
"""

from collections.abc import Hashable, Sequence
from enum import StrEnum

from wheelsched.config import BreakerConfig
from wheelsched.core.outcome import Failed, Outcome, Rejected
from wheelsched.values.duration import MILLISECOND


class BreakerState(StrEnum):
    CLOSED = "closed"  # lets every request through
    OPEN = "open"  # lets none through until the next probe
    HALF_OPEN = "half_open"  # lets the next request through, as a probe


class Verdict(StrEnum):
    """What the end of a request says about its target."""

    ANSWERED = "answered"  # whether or not the run succeeded
    FAILED = "failed"  # a failed response: 408, 429, 5xx
    OVERTAKEN = "overtaken"  # 425: the worker has seen a later attempt
    SILENT = "silent"  # the request was sent and got no response
    UNREACHED = "unreached"  # no connection

    @property
    def has_origin_failed(self) -> bool:
        """Whether it counts against the origin. Any response shows that the origin is up, even one
        with Retry-After: a handler sends that for its own job only."""
        return self in (Verdict.SILENT, Verdict.UNREACHED)

    @property
    def has_job_failed(self) -> bool | None:
        """Whether it counts against the job; None if it says nothing about it."""
        if self in (Verdict.UNREACHED, Verdict.OVERTAKEN):
            return None
        return self is not Verdict.ANSWERED


def verdict_of(outcomes: Sequence[Outcome], *, has_begun: bool) -> Verdict | None:
    """What a request says about its target; None if it was never sent.

    The runs of a batch share one status. If that is a success, each run may still have failed, and
    single attempts may have been overtaken.
    """
    first = next((one for one in outcomes if not _is_overtaken(one)), None)
    if first is None:
        return Verdict.OVERTAKEN
    if isinstance(first, Rejected) and first.http_status is None:
        return None
    if not isinstance(first, Failed):
        return Verdict.ANSWERED
    if first.http_status is None:
        return Verdict.SILENT if has_begun else Verdict.UNREACHED
    return Verdict.ANSWERED if first.http_status < 300 else Verdict.FAILED


def _is_overtaken(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and outcome.is_too_early


class Breaker:
    """Opens after several failures in a row, and closes when a probe succeeds."""

    __slots__ = (
        "_config",
        "_counted",
        "_failures",
        "_probes",
        "_wait_us",
        "error",
        "open_until_us",
        "opened_us",
        "state",
    )

    def __init__(self, config: BreakerConfig) -> None:
        self._config = config
        self._failures = 0
        self._counted: set[Hashable] = set()  # the `once` of the failures counted
        self._wait_us = config.open_initial_ms * MILLISECOND
        self._probes: set[int] = set()  # requests in flight, by identity
        self.state = BreakerState.CLOSED
        self.opened_us = 0
        self.open_until_us = 0
        self.error = ""  # of the latest failure

    @property
    def is_fresh(self) -> bool:
        """Whether it is as good as new."""
        return self.state is BreakerState.CLOSED and self._failures == 0

    @property
    def may_send(self) -> bool:
        return self.state is not BreakerState.OPEN

    def half_open(self, now_us: int) -> None:
        """Lets a probe through: the wait is over."""
        assert self.state is BreakerState.OPEN
        assert now_us >= self.open_until_us
        self.state = BreakerState.HALF_OPEN

    def sent(self, request: object, now_us: int) -> None:
        """Records that a request is sent. A probe that hangs does not delay the next one."""
        assert self.may_send
        if self.state is BreakerState.HALF_OPEN:
            self._probes.add(id(request))
            self._wait_us = min(self._wait_us * 2, self._config.open_max_ms * MILLISECOND)
            self._open(now_us)

    def ended(
        self,
        request: object,
        now_us: int,
        *,
        failed: bool | None,
        error: str = "",
        once: Hashable = None,
    ) -> None:
        """Records how a request ended. `failed` is None if that says nothing about the target.

        Of consecutive failures with the same `once`, only the first counts.
        """
        if failed:
            self.error = error
        if self.state is BreakerState.CLOSED:
            self._count(now_us, failed=failed, once=once)
        elif id(request) in self._probes:
            self._probes.remove(id(request))
            if failed is False:
                self._close()
            elif failed is None:
                self._wait_us = max(self._wait_us // 2, self._config.open_initial_ms * MILLISECOND)
                self.state = BreakerState.HALF_OPEN

    def _count(self, now_us: int, *, failed: bool | None, once: Hashable) -> None:
        if failed is False:
            self._close()
        elif failed and once not in self._counted:
            self._failures += 1
            if once is not None:
                self._counted.add(once)
            if self._failures >= self._config.failures:
                self.opened_us = now_us
                self._open(now_us)

    def _open(self, now_us: int) -> None:
        self.state = BreakerState.OPEN
        self.open_until_us = now_us + self._wait_us

    def _close(self) -> None:
        self.state = BreakerState.CLOSED
        self.error = ""
        self._failures = 0
        self._counted.clear()
        self._probes.clear()
        self._wait_us = self._config.open_initial_ms * MILLISECOND
