"""Workers that hang, drip, reset, flood, redirect, and talk nonsense; and one that does not."""

from tests.faults.client import every_second, now_us, once_at
from tests.faults.experiment import Scenario, Strike
from tests.faults.world import World

SECOND_US = 1_000_000
TIMEOUT_US = 2 * SECOND_US
MOST_LATE_US = 10 * SECOND_US  # on a machine that is busy; behind a breaker it was a minute
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


async def fail_beside(world: World) -> None:
    """Three handlers fail, and the other jobs of the same worker stay on time. Nothing else calls
    that worker: an answer to another job would end the failures in a row."""
    url = world.other.url
    failing = every_second(f"{url}/refuse", timeout_us=TIMEOUT_US, max_attempts=4)
    await world.clients.create_all({f"failing-{n}": failing for n in range(3)})
    await world.other.until_received("/refuse", 12)  # more than open one breaker for all
    due_us = now_us() + 3 * SECOND_US
    healthy = {f"once-healthy-{n}": once_at(due_us, f"{url}/ok?beside") for n in range(12)}
    await world.clients.create_all(healthy)
    await world.other.until_received("/ok?beside", len(healthy))
    late_us = now_us() - due_us
    world.require(late_us < MOST_LATE_US, f"healthy jobs were {late_us // 1_000} ms late")
    world.remarks.append(f"the last healthy job was seen {late_us // 1_000} ms after its time")


SCENARIOS = [
    Scenario(name="a handler that fails beside healthy ones", strike=fail_beside),
    *(
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
    ),
]
