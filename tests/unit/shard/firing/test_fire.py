"""Stage *fire* when one of its own steps fails."""

from collections.abc import Sequence

import pytest
from tests.unit.shard.world import World

from wheelsched.errors import InboxFull


@pytest.mark.parametrize("is_fresh", [True, False])
async def test_a_step_that_fails_ends_the_shard(
    world: World, monkeypatch: pytest.MonkeyPatch, is_fresh: bool
) -> None:
    """Another one takes over. Otherwise the runs that it had in hand would never be sent."""

    def fail(*_: object) -> Sequence[object]:
        raise InboxFull

    broken = "wheelsched.fairness.fair_queue.FairQueue.take"
    if not is_fresh:
        world.link.is_deaf = True
        broken = "wheelsched.flow.Inbox.put"
    await world.register("+5")
    world.start()
    await world.advance(4)
    monkeypatch.setattr(broken, fail)
    with pytest.raises(ExceptionGroup) as failed:
        await world.advance(2)
    assert failed.group_contains(InboxFull)
    world.shards.clear()
