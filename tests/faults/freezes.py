"""Shards that are frozen: shorter than trust lasts, about as long, and long past a takeover."""

from tests.faults.experiment import Load, Scenario, Strike
from tests.faults.world import World

VICTIM = "shard-1"
TAKEN_OVER_S = 20  # by then, whatever else the machine has to do


def frozen(for_s: float) -> Strike:
    async def strike(world: World) -> None:
        first_id = world.shards[VICTIM].shard_id
        await world.freeze(VICTIM, for_s)
        if for_s >= TAKEN_OVER_S:
            await world.shards[VICTIM].until_logged("shard.joined", 2)
            world.require(
                world.shards[VICTIM].shard_id != first_id, "it went on as who it was before"
            )
        await world.until_owned(2)
        await world.until_arrived(100)

    return strike


SCENARIOS = [
    Scenario(name="SIGSTOP for 2 s", strike=frozen(2)),
    Scenario(name="SIGSTOP for 4 s", strike=frozen(4)),
    Scenario(name="SIGSTOP for 9 s", strike=frozen(9), is_short=True),
    Scenario(name="SIGSTOP for 20 s", strike=frozen(20), load=Load(over_s=35, one_offs=90)),
]
