"""What clients can expect of each job, from what they asked for and what they know of it.

Invariant: a due time in a *certain* window had to be; one outside every *possible* window must not
have been. Between the two, either is right: a request was under way, or its answer was lost.
"""

from collections.abc import Sequence

from msgspec import Struct
from tests.checker.oracle import due_times
from tests.checker.records import Definition, History, Request, RunRow
from tests.checker.times import SECOND_US, Times

FOREVER_US = 1 << 61
NOTICE_US = SECOND_US  # what is acknowledged this long before a due time holds
ENDING = ("pause", "delete")
BY_HAND = ("retry", "redrive")
CLOCK_US = 20_000  # by which who answers may be ahead of the database


class Window(Struct, frozen=True, kw_only=True):
    """A time in which a job was active under a schedule. Instants are of the reference.

    Nobody could know of it before `known_us`: it was written, and not committed.
    """

    definition: Definition
    from_us: int
    known_us: int
    until_us: int


class Story:
    """One job."""

    def __init__(
        self, history: History, times: Times, requests: Sequence[Request], gone_us: int
    ) -> None:
        self._history = history
        self._times = times
        self.requests = sorted(requests, key=lambda request: request.sent_us)
        self.job = requests[0].job
        self.tenant = requests[0].tenant
        self.definitions = {
            request.definition.mark: request.definition
            for request in self.requests
            if request.definition is not None
        }
        self.retries = [
            request
            for request in self.requests
            if request.verb in BY_HAND and request.result != "failed"
        ]
        self._gone_us = gone_us
        self.possible = self._possible()
        self.certain = self._certain()

    def expected(self) -> dict[int, Window]:
        """The due times that had to be, each with its window.

        Who was asked for it knows the database's clock no better than others.
        """
        return {
            due_us: window
            for window in self.certain
            for due_us in self._due(window, self._times.database_us(window.until_us))
            if due_us > self._times.database_us(window.from_us) + CLOCK_US
        }

    def allowed(self, since_us: int = 0) -> set[int]:
        """The due times that may have been, by what was asked for since then."""
        return {
            due_us
            for window in self.possible
            if window.from_us >= since_us
            for due_us in self._due(window, self._latest_us(window))
        }

    def mark_of(self, due_us: int, at_us: int) -> int:
        """The least mark that a run may carry: that of the last edit that was in time."""
        instant_us = min(self._times.instant_us(due_us, at_us), at_us)
        known = [
            request.definition.mark
            for request in self.requests
            if request.definition is not None
            and request.result == "ok"
            and request.answered_us + NOTICE_US <= instant_us
        ]
        return max(known, default=0)

    def told_until_us(self, skip: RunRow) -> int:
        """Up to when a skip of several due times stands for what was due. What was late when a
        transaction has cancelled its job is told by the first of it: with the job its schedule is
        gone, and nobody knows how many more there were."""
        if skip.skip_reason != "deleted":
            return skip.due_us
        cancelled_us = [
            self._times.database_us(one.written_us)
            for one in self.requests
            if one.verb == "delete" and one.result != "failed" and one.written_us is not None
        ]
        return max([skip.due_us, *cancelled_us])

    def _due(self, window: Window, until_us: int) -> list[int]:
        # The clock may have been set back while the request was under way.
        from_us = min(map(self._times.database_us, (window.from_us, window.known_us)))
        return due_times(window.definition.schedule, from_us, until_us)

    def _latest_us(self, window: Window) -> int:
        """The latest that the database's clock has shown in a window; armed ahead at its end."""
        until_us = min(window.until_us, self._history.ended_us + 90 * SECOND_US)
        edges = [until_us, *(offset.from_us - 1 for offset in self._history.offsets)]
        inside = [edge for edge in edges if window.from_us <= edge <= until_us]
        return max(self._times.database_us(edge) for edge in inside)

    def _possible(self) -> list[Window]:
        windows: list[Window] = []
        schedules: list[Definition] = []  # any of which may be in force
        for place, request in enumerate(self.requests):
            if request.result == "failed" or request.is_wrong:
                continue
            starts: list[Definition] = []
            if request.verb in ("create", "edit") and request.definition is not None:
                if request.verb == "edit" and not request.is_rescheduled:
                    continue
                starts = [request.definition]
                schedules = [*(schedules if request.result == "unknown" else ()), *starts]
            elif request.verb == "resume":
                starts = schedules
            ends = [
                later.answered_us + NOTICE_US
                for later in self.requests[place + 1 :]
                if later.result == "ok" and (later.verb in ENDING or later.is_rescheduled)
            ]
            windows += [
                Window(
                    definition=definition,
                    from_us=request.sent_us,
                    known_us=request.answered_us,
                    until_us=min(ends, default=FOREVER_US),
                )
                for definition in starts
            ]
        return windows

    def _certain(self) -> list[Window]:
        windows: list[Window] = []
        schedules: list[Definition] = []
        is_active = False
        for place, request in enumerate(self.requests):
            if request.result == "failed" or request.is_wrong:
                continue
            is_known = request.result == "ok"
            starts = False
            if request.verb == "create" or request.is_rescheduled:
                assert request.definition is not None
                schedules = [*(() if is_known else schedules), request.definition]
                starts = is_known and (is_active or request.verb == "create")
                is_active = starts
            elif request.verb in ENDING:
                is_active = False
            elif request.verb == "resume":
                starts = is_active = is_known
            if starts and len(schedules) == 1:
                windows.append(self._certain_from(place, schedules[0]))
        return windows

    def _certain_from(self, place: int, definition: Definition) -> Window:
        ends = [
            later.sent_us
            for later in self.requests[place + 1 :]
            if later.result != "failed" and (later.verb in ENDING or later.is_rescheduled)
        ]
        known_us, written_us = self.requests[place].answered_us, self.requests[place].written_us
        from_us = known_us if written_us is None else written_us
        until_us = min([*ends, self._gone_us, self._history.healed_us])
        return Window(
            definition=definition,
            from_us=from_us,
            known_us=known_us,
            until_us=max(until_us, from_us),
        )


def read_stories(history: History, times: Times) -> dict[str, Story]:
    """The story of each job."""
    requests: dict[str, list[Request]] = {}
    for request in history.requests:
        requests.setdefault(request.job, []).append(request)
    gone_us: dict[str, int] = {}
    for arrival in history.arrivals:
        if arrival.answer == "gone":
            gone_us[arrival.job] = min(arrival.at_us, gone_us.get(arrival.job, FOREVER_US))
    return {
        job: Story(history, times, asked, gone_us.get(job, FOREVER_US))
        for job, asked in requests.items()
        if any(request.verb == "create" for request in asked)
    }
