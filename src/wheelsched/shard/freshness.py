"""Freshness: since when no hint can have been missed.

Invariant: `covers(t)` only if every change that committed a second before `t` has been heard of.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from wheelsched.core.duration import SECOND

# What is acknowledged this long before a due time holds: promise 8.
NOTICE_US: Final = SECOND


class Freshness:
    """When the listener last knew that it had heard everything, by the database's clock."""

    def __init__(self) -> None:
        self.confirmed_us = 0

    def confirmed(self, sent_us: int, error_us: int) -> None:
        """After a round trip that was sent at `sent_us`, by a clock that may err by `error_us`."""
        self.confirmed_us = max(self.confirmed_us, sent_us - error_us)

    def lost(self) -> None:
        """The listener hears nothing any more."""
        self.confirmed_us = 0

    def covers(self, due_us: int) -> bool:
        """Whether a run that is due then may go out without looking again."""
        return due_us - NOTICE_US <= self.confirmed_us


class Doubts:
    """The jobs that have changed and were not read again since.

    Changes are numbered. A run that was read, or claimed, after its job had changed is vouched for
    up to the latest change of that moment. So a change is noted once, and nothing is written to the
    runs of its job, of which there may be a hundred thousand.
    """

    def __init__(self) -> None:
        self.latest = 0  # the number of the latest change of any job
        self.jobs: dict[UUID, int] = {}  # with the number of the latest change of each

    def changed(self, job_id: UUID) -> None:
        """Nothing of a job is sent before it was read again."""
        self.latest += 1
        self.jobs[job_id] = self.latest

    def concern(self, job_id: UUID, vouched: int) -> bool:
        """Whether a run of the job, vouched for up to a number, is to be read again."""
        return vouched < self.jobs.get(job_id, 0)

    def resolve(self, job_id: UUID, number: int) -> None:
        """Every run of a job is vouched for up to a number; unless it changed since, that is it."""
        if self.jobs.get(job_id) == number:
            del self.jobs[job_id]


class Changes:
    """The jobs that were told to have changed while runs of them were being claimed.

    A claim that has committed and is not answered has runs that nobody here knows of yet: a hint
    about one of them finds nothing to put in doubt, and is kept until the answer has come.
    """

    def __init__(self) -> None:
        self._claims: list[set[UUID]] = []
        self._missed: list[set[UUID]] = []  # of those claims, the ones that anything may concern
        self._has_heard = False  # anything of any of them: every run asks, nearly always in vain

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps what is heard for as long as a claim is under way."""
        heard: set[UUID] = set()
        self._claims.append(heard)
        try:
            yield
        finally:
            self._claims = [other for other in self._claims if other is not heard]
            self._missed = [other for other in self._missed if other is not heard]
            self._has_heard = any(self._claims)

    def heard(self, job_id: UUID) -> None:
        for claim in self._claims:
            claim.add(job_id)
            self._has_heard = True

    def missed(self) -> None:
        """Any job may have changed."""
        self._missed = list(self._claims)

    def concern(self, job_id: UUID) -> bool:
        """Whether a job may have changed since the claim that is under way was begun."""
        if self._missed:
            return True
        return self._has_heard and any(job_id in claim for claim in self._claims)
