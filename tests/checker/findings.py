"""What the checker has found: broken promises, and figures."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace
from tests.checker.leases import DELIVERY_LEASE_US
from tests.checker.losses import TRUSTED_US, losses, overlaps, with_doubts
from tests.checker.records import Arrival, Fault, History, Ownership, Request, RunRow
from tests.checker.story import Story, read_stories
from tests.checker.times import SECOND_US, Times

ABOUT_US = 2 * SECOND_US
REVIVABLE = ("dead", "cancelled")  # ends after which a person may retry a run


class Finding(Struct, frozen=True, order=True):
    """A broken promise, by name, and where it was seen."""

    name: str
    job: str
    due_us: int
    detail: str = ""


class Report(Struct, kw_only=True):
    """The verdict about one history."""

    findings: list[Finding] = field(default_factory=list)
    runs: int = 0
    lateness_us: list[int] = field(default_factory=list)  # of first arrivals
    takeovers_us: list[int] = field(default_factory=list)  # from a kill to the next fire
    duplicates: Counter[str] = field(default_factory=Counter)  # by the fault that explains them
    forgotten_jobs: int = 0  # that were acknowledged, and are gone by a loss

    @property
    def names(self) -> set[str]:
        return {finding.name for finding in self.findings}


class Evidence:
    """A history, sorted for whoever looks for something in it."""

    def __init__(self, told: History) -> None:
        self.told = told
        self.history = history = without_returns(with_doubts(told))
        self.times = Times(history)
        self.stories: dict[str, Story] = read_stories(history, self.times)
        self.runs: dict[tuple[str, int], RunRow] = {}
        self.twice: list[RunRow] = []
        for run in history.runs:
            if (run.job, run.due_us) in self.runs:
                self.twice.append(run)
            self.runs[run.job, run.due_us] = run
        self.runs_of: dict[str, list[RunRow]] = {}
        for run in history.runs:
            self.runs_of.setdefault(run.job, []).append(run)
        self.overwritten: dict[tuple[str, int], list[RunRow]] = {}
        for run in history.overwritten:
            self.overwritten.setdefault((run.job, run.due_us), []).append(run)
        self.revived: dict[tuple[str, int], list[RunRow]] = {}  # the ends of their earlier lives
        for run in history.overwritten:
            if run.state in REVIVABLE:
                self.revived.setdefault((run.job, run.due_us), []).append(run)
        self.arrivals = _by_run(history.arrivals)
        # Those of queues, also those that came back.
        self.hand_outs = _by_run(one for one in told.arrivals if one.queue)
        self.arrivals_of: dict[str, list[Arrival]] = {}
        for arrival in history.arrivals:
            self.arrivals_of.setdefault(arrival.job, []).append(arrival)
        self.ownerships_of: dict[int, list[Ownership]] = {}
        for ownership in history.ownerships:
            self.ownerships_of.setdefault(ownership.partition, []).append(ownership)
        self.partitions = {
            run.job: run.partition for run in (*history.forgotten, *history.runs)
        } | {job.job: job.partition for job in history.jobs}

    def ownership_of(self, arrival: Arrival) -> Ownership | None:
        """The one under which a run was sent, if it is known."""
        partition = self.partitions.get(arrival.job, -1)
        of_epoch = (
            ownership
            for ownership in self.ownerships_of.get(partition, ())
            if ownership.epoch == arrival.token >> 32 and not ownership.is_restored
        )
        return next(of_epoch, None)

    def lives_of(self, run: RunRow) -> list[tuple[RunRow, list[Arrival]]]:
        """The lives of a run: how each ended, and what was sent in it. Retried by hand, it gets
        another one, whose tokens are greater; but what was sent before somebody asked for that is
        of the life before, though the database may have forgotten its token."""
        key = run.job, run.due_us
        left = [one for one in self.arrivals.get(key, ()) if not self.is_of_lost_life(one)]
        lives = []
        for place, end in enumerate(self.revived.get(key, ())):
            later = [
                one
                for one in left
                if one.token > (end.token or 0) and self._retries_before(one) > place
            ]
            lives.append((end, [one for one in left if one not in later]))
            left = later
        return [*lives, (run, left)]

    def retries_of(self, job: str, due_us: int) -> list[Request]:
        """The requests that may have retried a run by hand."""
        story = self.stories.get(job)
        retries = () if story is None else story.retries
        return [one for one in retries if _names(one, due_us)]

    def is_retried(self, arrival: Arrival) -> bool:
        """Whether an attempt may be one that somebody asked for by hand."""
        return self._retries_before(arrival) > 0

    def _retries_before(self, arrival: Arrival) -> int:
        """How often somebody had asked by then to retry its run."""
        asked = self.retries_of(arrival.job, arrival.due_us)
        return sum(one.sent_us <= arrival.at_us for one in asked)

    def is_of_lost_life(self, arrival: Arrival) -> bool:
        """Whether an attempt was of a life that the database has forgotten, as its claim is."""
        key = arrival.job, arrival.due_us
        rows = (self.runs.get(key), *self.overwritten.get(key, ()))
        if any(row is not None and row.token == arrival.token for row in rows):
            return False
        return any(
            loss.from_us <= arrival.at_us <= loss.until_us + TRUSTED_US
            and any(
                one.sent_us <= arrival.at_us and overlaps(loss, one)
                for one in self.retries_of(arrival.job, arrival.due_us)
            )
            for loss in losses(self.history)
        )

    def ended_us(self, run: RunRow) -> int | None:
        """When a run ended, by the reference; None if it has not.

        A success ends as soon as its worker has said so. Of other ends nobody knows more than the
        time in the table; if a clock that was set back has shown it twice, the last one counts.
        """
        if run.finished_at_us is None:
            return None
        said_us = [
            one.reported_us or one.answered_us
            for one in self.arrivals.get((run.job, run.due_us), ())
            if one.token == run.token and "ok" in (one.answer, one.reported)
        ]
        heard_us = min((us for us in said_us if us is not None), default=None)
        if run.state != "succeeded" or heard_us is None:
            return self.times.instant_us(run.finished_at_us)
        return self.times.instant_after_us(run.finished_at_us, heard_us)

    def lag_us(self, shard: str, answered_us: int) -> int:
        """How long a shard took at most to write what was answered about then: it had a backlog."""
        told = self._lags.get(shard, [])
        first = bisect_left(told, (answered_us - ABOUT_US, 0))
        last = bisect_left(told, (answered_us + ABOUT_US, 0))
        return max((lag_us for _, lag_us in told[first:last]), default=0)

    @cached_property
    def _lags(self) -> dict[str, list[tuple[int, int]]]:
        lags: dict[str, list[tuple[int, int]]] = {}
        for key, run in self.runs.items():
            for arrival in self.arrivals.get(key, ()):
                if run.state != "succeeded" or run.finished_at_us is None or run.shard is None:
                    continue
                is_callback = not arrival.reported and not arrival.queue
                if arrival.token == run.token and arrival.answered_us and is_callback:
                    heard_us = arrival.answered_us
                    ended_us = self.times.instant_after_us(run.finished_at_us, heard_us)
                    lags.setdefault(run.shard, []).append((heard_us, ended_us - heard_us))
        return {shard: sorted(told) for shard, told in lags.items()}

    def concerns(self, fault: Fault, shard: str) -> bool:
        """Whether a fault was everybody's, or of the process that had a lease under that name."""
        if fault.shard is None or fault.shard == shard:
            return True
        return any(
            fault.shard in life.shards and shard in life.shards for life in self.history.lives
        )


def _by_run(arrivals: Iterable[Arrival]) -> dict[tuple[str, int], list[Arrival]]:
    """The arrivals of each run, in their order."""
    found: dict[tuple[str, int], list[Arrival]] = {}
    for arrival in sorted(arrivals, key=lambda arrival: arrival.at_us):
        found.setdefault((arrival.job, arrival.due_us), []).append(arrival)
    return found


def without_returns(history: History) -> History:
    """The history without the runs of queues that were given back in time: they were not begun."""
    if not any(arrival.given_back_us for arrival in history.arrivals):
        return history
    handed = Counter((one.job, one.due_us, one.token) for one in history.arrivals)
    begun = (
        one
        for one in history.arrivals
        if one.given_back_us is None
        or (
            one.given_back_us - one.at_us >= DELIVERY_LEASE_US
            and handed[one.job, one.due_us, one.token] == 1
        )
    )
    return replace(history, arrivals=tuple(begun))


def _names(request: Request, due_us: int) -> bool:
    """Whether a run is one of those that a request may have retried.

    Of a redrive that was sent several times, the answer names what the last sending has retried.
    """
    if request.verb == "retry":
        return request.due_us == due_us
    is_partly_heard = request.result == "unknown" or request.is_repeated
    return is_partly_heard or due_us in request.filled_us
