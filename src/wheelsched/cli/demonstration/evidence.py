"""Compares what was registered with what arrived.

Invariant: it trusts nothing that a shard reports, only the worker's records and the registrations.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Final
from uuid import UUID

from msgspec import Struct

from wheelsched.cli.demonstration.records import Arrival
from wheelsched.cli.demonstration.scenario import Registered
from wheelsched.core.histogram import Histogram
from wheelsched.core.partition import partition_of
from wheelsched.values.duration import SECOND

SETTLING_US: Final = SECOND // 2  # requests in flight at the kill arrive within this time


class Kill(Struct, frozen=True):
    """When a shard was killed, the partitions it owned, and when others owned all of them."""

    at_us: int
    partitions: frozenset[int]
    owned_us: int | None = None


class Evidence(Struct, frozen=True, kw_only=True, dict=True):
    """All observations. Recurring jobs count from `since_us` until `until_us`.

    `took_us` is the run time of the whole stack, known at the end.
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
        """Runs that were due and never arrived."""
        expected = self.expected_one_offs + self.expected_recurring
        return expected - len(self.first_arrivals)

    @property
    def early(self) -> int:
        return sum(arrival.lateness_us < 0 for arrival in self.first_arrivals.values())

    @property
    def duplicates(self) -> list[Arrival]:
        """Repeated arrivals of a run."""
        first = self.first_arrivals
        return [
            arrival
            for arrival in self.arrivals
            if self._counts(arrival) and first[arrival.job_id, arrival.due_us] is not arrival
        ]

    @property
    def done_twice(self) -> int:
        """Duplicates that the worker did not detect."""
        return sum(arrival.is_first for arrival in self.duplicates)

    @property
    def unexplained(self) -> int:
        """Duplicates of runs that the dead shard did not own, or that were due after it was
        killed."""
        kill = self.kill
        if kill is None:
            return len(self.duplicates)
        return sum(
            partition_of(arrival.job_id) not in kill.partitions or arrival.due_us > kill.at_us
            for arrival in self.duplicates
        )

    @property
    def ownership_us(self) -> int | None:
        """Time from the kill until other shards owned the partitions; None if they never did."""
        kill = self.kill
        return None if kill is None or kill.owned_us is None else kill.owned_us - kill.at_us

    @property
    def takeover_us(self) -> int | None:
        """Time from the kill until another shard fired a job of the dead one; None if none did.

        A run that arrives again was sent by the next owner. So was one that was due after the kill.
        """
        if self.kill is None:
            return None
        kill = self.kill
        due_later = (
            arrival
            for arrival in self.first_arrivals.values()
            if arrival.due_us >= kill.at_us + SETTLING_US
        )
        came = [
            arrival.arrived_us
            for arrival in (*self.duplicates, *due_later)
            if partition_of(arrival.job_id) in kill.partitions
        ]
        return min(came) - kill.at_us if came else None

    def lateness(self, since_us: int, until_us: int) -> Histogram:
        """The lateness of runs due in a range."""
        histogram = Histogram()
        histogram.observe_many(
            arrival.lateness_us
            for arrival in self.first_arrivals.values()
            if since_us <= arrival.due_us < until_us
        )
        return histogram

    def phases(self) -> Iterator[tuple[str, Histogram]]:
        """The lateness before the hot instant, from then until the takeover, and after that."""
        instant_us = self.registered.due_us
        yield "before", self.lateness(self.since_us, instant_us)
        if self.kill is None:
            yield "after the instant", self.lateness(instant_us, self.until_us)
            return
        taken_us = self.kill.at_us + (self.takeover_us or 0)
        yield "around the kill", self.lateness(instant_us, taken_us)
        yield "after the takeover", self.lateness(taken_us, self.until_us)

    def _counts(self, arrival: Arrival) -> bool:
        if arrival.job_id in self.registered.one_offs:
            return True
        is_recurring = arrival.job_id in self.registered.recurring
        return is_recurring and self.since_us <= arrival.due_us < self.until_us
