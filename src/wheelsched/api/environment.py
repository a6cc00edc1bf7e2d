"""The API's dependencies other than the store.

Invariant: the API reads time, randomness and metrics only from here.
"""

from collections.abc import Awaitable, Callable
from random import Random

from msgspec import Struct, field

from wheelsched.ports import Clock
from wheelsched.ports.work import WorkSource
from wheelsched.vitals import ApiVitals


class ShardStatus(Struct, frozen=True, kw_only=True):
    """A shard's own report about its load."""

    lateness_p99_ms: float | None = None
    armed: int | None = None
    in_flight: int | None = None
    unready_partitions: int | None = None


async def no_shard_status(_: str) -> ShardStatus:
    """Reports nothing about any shard."""
    return ShardStatus()


async def no_refresh() -> None:
    """Does nothing: the time comes from the store itself."""


class Environment(Struct, frozen=True, kw_only=True):
    """Clocks, randomness, metrics and shard status for the API.

    `now_us` is the database time; `clock` measures durations in this process. `refresh_clock`
    re-reads the database clock, which may have been set since the last reading; it takes bounded
    time or raises a `StoreError`. `fetch_shard_status` asks the shard at an address. `work` has the
    runs for workers that pull; without it this process hands out none.
    """

    clock: Clock
    now_us: Callable[[], int]
    refresh_clock: Callable[[], Awaitable[None]] = no_refresh
    random: Random
    metrics: Callable[[], str]
    vitals: ApiVitals = field(default_factory=ApiVitals)
    fetch_shard_status: Callable[[str], Awaitable[ShardStatus]] = no_shard_status
    work: WorkSource | None = None
