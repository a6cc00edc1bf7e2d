"""Scenarios of the demonstration, as numbers and as jobs.

Invariant: the same scenario makes the same jobs; only the due time of the one-offs differs.
"""

from collections.abc import Iterator
from uuid import UUID

from msgspec import Struct

from wheelsched.client import JobFields
from wheelsched.wire.instant import instant


class Scenario(Struct, frozen=True, kw_only=True):
    """One-offs that are all due at one instant, next to jobs that are due every second.

    `single` of the one-offs get a request each; the others are sent in batches of up to `batch`.
    """

    one_offs: int = 20_000
    single: int = 1_000
    batch: int = 100
    recurring: int = 300
    shards: int = 2
    is_killing: bool = True
    kill_after_ms: int = 300  # after the one-offs are due
    lead_s: int = 5  # from the last registration until the one-offs are due
    steady_s: int = 5  # at the end

    @property
    def registering_s(self) -> int:
        """How long registering may take on a slow machine."""
        return 3 + self.one_offs // 2_500


def recurring_jobs(scenario: Scenario, url: str) -> Iterator[JobFields]:
    """Jobs due every second. They may overlap, so that every due time must arrive."""
    for number in range(scenario.recurring):
        yield {
            "name": f"every-second-{number:05}",
            "schedule": "* * * * * *",
            "target": {"url": url, "batch": scenario.batch},
            "overlap": {"policy": "allow"},
            "payload": {"number": number},
        }


def one_off_jobs(scenario: Scenario, url: str, due_us: int) -> Iterator[JobFields]:
    """Jobs due at one instant."""
    due_at = instant(due_us).isoformat()
    for number in range(scenario.one_offs):
        batch = 1 if number < scenario.single else scenario.batch
        yield {
            "name": f"once-{number:07}",
            "schedule": due_at,
            "target": {"url": url, "batch": batch},
            "payload": {"number": number},
        }


class Registered(Struct, frozen=True, kw_only=True):
    """The registered jobs, and how long registering the one-offs took."""

    one_offs: frozenset[UUID]
    recurring: frozenset[UUID]
    due_us: int
    took_us: int
