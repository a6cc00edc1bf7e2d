"""What was registered and what arrived, and what follows from it.

Invariant: nothing here is believed of a shard: all of it is what the worker wrote down, against
what was registered.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Final
from uuid import UUID

from msgspec import Struct

from wheelsched.cli.demonstration.records import Arrival
from wheelsched.cli.demonstration.scenario import Registered
from wheelsched.core.duration import SECOND
from wheelsched.core.histogram import Histogram
from wheelsched.core.partition import partition_of

SETTLING_US: Final = SECOND // 2  # what was on the wire at a kill arrives within it


class Kill(Struct, frozen=True):
    """The shard that was killed: when, and what it owned."""

    at_us: int
    partitions: frozenset[int]


class Evidence(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that was seen. Recurring jobs are counted from `since_us` until `until_us`.

    `took_us` is known when all is over: from the first process of the stack to its last.
    """

    registered: Registered
    arrivals: list[Arrival]
    since_us: int
    until_us: int
    kill: Kill | None = None
    took_us: int = 0

    @cached_property
    def first_arrivals(self) -> dict[tuple[UUID, int], Arrival]:
        """The first arrival of every run that counts."""
        first: dict[tuple[UUID, int], Arrival] = {}
        for arrival in self.arrivals:
            if self._counts(arrival):
                first.setdefault((arrival.job_id, arrival.due_us), arrival)
        return first

    @property
    def expected_one_offs(self) -> int:
        return len(self.registered.one_offs)

    @property
    def expected_recurring(self) -> int:
        return len(self.registered.recurring) * ((self.until_us - self.since_us) // SECOND)

    @property
    def arrived_one_offs(self) -> int:
        return sum(job_id in self.registered.one_offs for job_id, _ in self.first_arrivals)

    @property
    def arrived_recurring(self) -> int:
        return len(self.first_arrivals) - self.arrived_one_offs

    @property
    def lost(self) -> int:
        """Runs that were due and never came."""
        expected = self.expected_one_offs + self.expected_recurring
        return expected - len(self.first_arrivals)

    @property
    def early(self) -> int:
        return sum(arrival.lateness_us < 0 for arrival in self.first_arrivals.values())

    @property
    def duplicates(self) -> list[Arrival]:
        """Arrivals of runs that had come before."""
        first = self.first_arrivals
        return [
            arrival
            for arrival in self.arrivals
            if self._counts(arrival) and first[arrival.job_id, arrival.due_us] is not arrival
        ]

    @property
    def done_twice(self) -> int:
        """Duplicates that the worker did not recognise."""
        return sum(arrival.is_first for arrival in self.duplicates)

    @property
    def unexplained(self) -> int:
        """Duplicates of runs that the dead shard did not own, or that were due after its end."""
        kill = self.kill
        if kill is None:
            return len(self.duplicates)
        return sum(
            partition_of(arrival.job_id) not in kill.partitions or arrival.due_us > kill.at_us
            for arrival in self.duplicates
        )

    @property
    def takeover_us(self) -> int | None:
        """From the kill to the next run of the dead shard's jobs; None: there was none."""
        if self.kill is None:
            return None
        after_us = self.kill.at_us + SETTLING_US
        came = [
            arrival.arrived_us
            for arrival in self.first_arrivals.values()
            if arrival.due_us >= after_us and partition_of(arrival.job_id) in self.kill.partitions
        ]
        return min(came) - self.kill.at_us if came else None

    def lateness(self, since_us: int, until_us: int) -> Histogram:
        """Of the runs that were due in between."""
        histogram = Histogram()
        histogram.observe_many(
            arrival.lateness_us
            for arrival in self.first_arrivals.values()
            if since_us <= arrival.due_us < until_us
        )
        return histogram

    def phases(self) -> Iterator[tuple[str, Histogram]]:
        """The lateness before the one instant, from it until the takeover, and after that."""
        instant_us = self.registered.due_us
        yield "before", self.lateness(self.since_us, instant_us)
        if self.kill is None:
            yield "from the instant on", self.lateness(instant_us, self.until_us)
            return
        taken_us = self.kill.at_us + (self.takeover_us or 0)
        yield "around the kill", self.lateness(instant_us, taken_us)
        yield "after the takeover", self.lateness(taken_us, self.until_us)

    def _counts(self, arrival: Arrival) -> bool:
        if arrival.job_id in self.registered.one_offs:
            return True
        is_recurring = arrival.job_id in self.registered.recurring
        return is_recurring and self.since_us <= arrival.due_us < self.until_us
