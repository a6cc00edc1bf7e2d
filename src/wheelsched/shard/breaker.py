"""Fire: circuit breakers, so that whatever fails waits by itself.

An origin has a breaker for what got no answer, a job one for bad answers: a handler that fails must
not hold up the other jobs of its worker.

Invariant: while a breaker is not closed, requests go out one at a time, each a wait after the last;
the wait doubles with every one of them. These are its probes, and only they decide: what was sent
before it opened says nothing about the target of now.
"""

from collections.abc import Hashable, Sequence
from enum import StrEnum
from http import HTTPStatus

from wheelsched.config import BreakerConfig
from wheelsched.core.duration import MILLISECOND
from wheelsched.core.outcome import Failed, Outcome, Rejected


class BreakerState(StrEnum):
    CLOSED = "closed"  # everything goes
    OPEN = "open"  # nothing goes until the next probe
    HALF_OPEN = "half_open"  # the next request goes, as a probe


class Verdict(StrEnum):
    """What the end of a request says about its target."""

    ANSWERED = "answered"  # whether or not the run succeeded
    FAILED = "failed"  # a bad answer: 408, 429, 5xx
    OVERTAKEN = "overtaken"  # the worker has seen a later attempt: nobody's failure
    SILENT = "silent"  # the request was sent, and there is no answer
    UNREACHED = "unreached"  # no connection

    @property
    def has_origin_failed(self) -> bool:
        """Whether it counts against the origin. Any answer at all shows that the origin is there,
        also one with Retry-After: a single handler can send it, and speaks for its own job."""
        return self in (Verdict.SILENT, Verdict.UNREACHED)

    @property
    def has_job_failed(self) -> bool | None:
        """Whether it counts against the job; None if it says nothing about the job."""
        if self in (Verdict.UNREACHED, Verdict.OVERTAKEN):
            return None
        return self is not Verdict.ANSWERED


def judge(outcomes: Sequence[Outcome], *, has_begun: bool) -> Verdict | None:
    """What a request says about its target; None if it never went out.

    The runs of a batch share one status; with a good one, each run has its own retry policy.
    """
    first = outcomes[0]
    if isinstance(first, Rejected) and first.http_status is None:
        return None
    if not isinstance(first, Failed):
        return Verdict.ANSWERED
    if first.http_status is None:
        return Verdict.SILENT if has_begun else Verdict.UNREACHED
    if first.http_status == HTTPStatus.TOO_EARLY:
        return Verdict.OVERTAKEN
    return Verdict.ANSWERED if first.http_status < 300 else Verdict.FAILED


class Breaker:
    """Opens after so many failures in a row, until a probe succeeds."""

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
        self._counted: set[Hashable] = set()  # see `ended`; no more of them than failures
        self._wait_us = config.open_initial_ms * MILLISECOND
        self._probes: set[int] = set()  # requests in flight, by identity
        self.state = BreakerState.CLOSED
        self.opened_us = 0
        self.open_until_us = 0
        self.error = ""  # of the latest failure

    @property
    def is_fresh(self) -> bool:
        """Whether it remembers nothing, so that a new one would do as well."""
        return self.state is BreakerState.CLOSED and self._failures == 0

    @property
    def may_send(self) -> bool:
        return self.state is not BreakerState.OPEN

    def half_open(self, now_us: int) -> None:
        """Lets a probe through, the wait being over."""
        assert self.state is BreakerState.OPEN
        assert now_us >= self.open_until_us
        self.state = BreakerState.HALF_OPEN

    def sent(self, request: object, now_us: int) -> None:
        """Notes that a request goes out. The next probe does not wait for one that hangs."""
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
        """Notes how a request ended; None if that says nothing.

        Of failures in a row with the same `once`, only the first counts.
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
