"""A whole day of a shard in virtual time: ten thousand jobs, each at its second, once."""

from collections import Counter
from random import Random

import pytest
from tests.unit.shard.world import World

from wheelsched.config import ShardConfig
from wheelsched.values.duration import MINUTE, SECOND

pytestmark = pytest.mark.proof  # a whole day

JOBS = 10_000
DAY_S = 86_400

# What a shard does every second or so whether there is work or not is what a day consists of:
# here it does that every minute.
SELDOM = ShardConfig(
    lease_ttl_us=5 * MINUTE,
    lease_margin_us=10 * SECOND,
    refresh_us=8 * MINUTE,
    confirm_us=MINUTE,
    watch_us=MINUTE,
    overdue_us=MINUTE,
)


async def test_ten_thousand_jobs_fire_once_on_their_day() -> None:
    random = Random(1)
    wanted = [random.randrange(DAY_S) for _ in range(JOBS)]
    async with World() as world:
        await world.register_many(
            [f"{at_s % 60} {at_s // 60 % 60} {at_s // 3600} * * *" for at_s in wanted]
        )
        start_s = world.now_us() // SECOND
        shard = world.start(config=SELDOM)
        await world.advance(DAY_S)
        arrived = Counter((start_s + round(at_s)) % DAY_S for at_s, _ in world.arrived)
        assert set(world.keys.values()) == {1}
        assert arrived == Counter(wanted)
        assert shard.vitals.runs.lateness.max_us < 1_000
