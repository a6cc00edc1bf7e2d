"""Workers that hang, drip, reset, flood, redirect, and talk nonsense; and one that does not."""

from tests.faults.client import every_second, now_us, once_at
from tests.faults.experiment import Scenario, Strike
from tests.faults.world import World

SECOND_US = 1_000_000
TIMEOUT_US = 2 * SECOND_US
MOST_BYTES = 400 << 20  # of a shard, whatever it is sent


def bad_tempered(temper: str) -> Strike:
    """A worker of its own: the jobs of the other one notice nothing."""

    async def strike(world: World) -> None:
        url = f"{world.other.url}/{temper}"
        due_us = now_us() + 2 * SECOND_US
        bounds = {"timeout_us": TIMEOUT_US, "max_attempts": 2}
        jobs = {f"once-bad-{n}": once_at(due_us, url, **bounds) for n in range(12)}
        jobs |= {f"always-bad-{n}": every_second(url, "skip", **bounds) for n in range(3)}
        await world.clients.create_all(jobs)
        await world.other.until_received(f"/{temper}", 12)
        await world.until_arrived(250)
        peak = max(shard.peak_bytes for shard in world.shards.values())
        world.require(peak < MOST_BYTES, f"a shard had {peak >> 20} MiB")
        world.remarks.append(f"a shard had at most {peak >> 20} MiB")

    return strike


SCENARIOS = [
    Scenario(name=f"a worker that {words}", strike=bad_tempered(temper))
    for temper, words in (
        ("hang", "hangs"),
        ("drip", "drips a byte a second"),
        ("reset", "resets"),
        ("flood", "floods: 10 GB"),
        ("redirect", "redirects"),
        ("garbage", "talks nonsense"),
        ("refuse", "refuses: 503"),
    )
]
