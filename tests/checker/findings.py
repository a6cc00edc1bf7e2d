"""What the checker has found: broken promises, and figures."""

from bisect import bisect_left
from collections import Counter
from functools import cached_property

from msgspec import Struct, field
from tests.checker.records import Arrival, Fault, History, RunRow, Tenure
from tests.checker.story import Story, read_stories
from tests.checker.times import SECOND_US, Times

ABOUT_US = 2 * SECOND_US


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

    @property
    def names(self) -> set[str]:
        return {finding.name for finding in self.findings}


class Evidence:
    """A history, sorted for whoever looks for something in it."""

    def __init__(self, history: History) -> None:
        self.history = history
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
        self.arrivals: dict[tuple[str, int], list[Arrival]] = {}
        for arrival in sorted(history.arrivals, key=lambda arrival: arrival.at_us):
            self.arrivals.setdefault((arrival.job, arrival.due_us), []).append(arrival)
        self.arrivals_of: dict[str, list[Arrival]] = {}
        for arrival in history.arrivals:
            self.arrivals_of.setdefault(arrival.job, []).append(arrival)
        self.tenures_of: dict[int, list[Tenure]] = {}
        for tenure in history.tenures:
            self.tenures_of.setdefault(tenure.partition, []).append(tenure)
        self.partitions = {run.job: run.partition for run in history.runs} | {
            job.job: job.partition for job in history.jobs
        }

    def tenure_of(self, arrival: Arrival) -> Tenure | None:
        """The one under which a run was sent, if it is known."""
        partition = self.partitions.get(arrival.job, -1)
        of_epoch = (
            tenure
            for tenure in self.tenures_of.get(partition, ())
            if tenure.epoch == arrival.token >> 32
        )
        return next(of_epoch, None)

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
                if arrival.token == run.token and arrival.answered_us and not arrival.reported:
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
