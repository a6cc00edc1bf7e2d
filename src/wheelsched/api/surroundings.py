"""What the API needs of its world beside the store.

Invariant: the API reads no time, no randomness and no counter but these.
"""

from collections.abc import Awaitable, Callable
from random import Random

from msgspec import Struct, field

from wheelsched.ports import Clock
from wheelsched.vitals import ApiVitals


class Condition(Struct, frozen=True, kw_only=True):
    """How a shard is doing, by its own account."""

    lateness_p99_ms: float | None = None
    armed: int | None = None
    in_flight: int | None = None
    unready_partitions: int | None = None


async def ask_nobody(_: str) -> Condition:
    """Nothing is known of any shard but its lease."""
    return Condition()


async def trust_now() -> None:
    """The time is that of the store itself, and needs no refreshing."""


class Surroundings(Struct, frozen=True, kw_only=True):
    """`now_us` is the database's time; `clock` measures what passes in this process.

    After `refresh_now` that time rests on a fresh reading of the database's clock, which somebody
    may have set since the last one; in bounded time, or it raises a `StoreError`.

    `ask_shard` asks the shard at an address how it is doing, in bounded time.
    """

    clock: Clock
    now_us: Callable[[], int]
    refresh_now: Callable[[], Awaitable[None]] = trust_now
    random: Random
    metrics: Callable[[], str]
    vitals: ApiVitals = field(default_factory=ApiVitals)
    ask_shard: Callable[[str], Awaitable[Condition]] = ask_nobody
