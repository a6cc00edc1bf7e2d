"""The phases of a run: the pipeline makes only the transitions in the table."""

from collections.abc import Sequence
from itertools import pairwise, product

import pytest
from msgspec import Struct
from tests.unit.shard.armed_runs import armed
from tests.unit.shard.world import World

from wheelsched.core.model import Job
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.errors import IllegalMove
from wheelsched.ports import Callback, Route
from wheelsched.shard.runs.armed_run import ArmedRun
from wheelsched.shard.runs.phase import IN_DOUBT, NEXT, Phase

Move = tuple[Phase, Phase]


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> set[Move]:
    """Every transition, including those that are assigned without a check."""
    seen: set[Move] = set()

    def note(self: ArmedRun, name: str, value: object) -> None:
        if name == "phase":
            assert isinstance(value, Phase)
            seen.add((self.phase, value))
        Struct.__setattr__(self, name, value)

    monkeypatch.setattr(ArmedRun, "__setattr__", note, raising=False)
    return seen


@pytest.mark.parametrize(("before", "after"), list(product(Phase, Phase)))
def test_a_run_refuses_transitions_outside_the_table(before: Phase, after: Phase) -> None:
    run = armed(1)
    run.phase = before
    if after is before or after in NEXT[before]:
        run.enter(after)
        assert run.phase is after
    else:
        with pytest.raises(IllegalMove):
            run.enter(after)


def test_every_run_can_be_withdrawn_and_stays_so() -> None:
    assert NEXT[Phase.WITHDRAWN] == frozenset()
    assert all(Phase.WITHDRAWN in NEXT[phase] for phase in Phase if phase is not Phase.WITHDRAWN)
    assert all(Phase.SENT not in NEXT[phase] for phase in IN_DOUBT)


@pytest.mark.parametrize("policy", OnOverlap)
async def test_the_pipeline_follows_the_table(
    world: World, moves: set[Move], policy: OnOverlap
) -> None:
    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        await world.clock.sleep(world.random.randrange(2_500_000_000))
        is_well = world.random.random() < 0.7
        return [Succeeded(http_status=200) if is_well else Failed(error="no")] * len(callbacks)

    world.handler = work
    overlap = OverlapPolicy(policy=policy)
    jobs = await world.register_many(["* * * * * *"] * 20, overlap=overlap)
    world.start()
    for second in range(20):
        await world.advance(1)
        await disturb(world, jobs, second)
    assert moves
    illegal = {(before, after) for before, after in moves if after not in {before, *NEXT[before]}}
    assert illegal == set()
    way = (Phase.ARMED, Phase.ADMITTED, Phase.SENT, Phase.SETTLING)
    assert set(pairwise(way)) <= moves


async def disturb(world: World, jobs: Sequence[Job], second: int) -> None:
    """Pauses, resumes and misses hints, so that runs are held, withdrawn and rebuilt."""
    world.link.is_deaf = second % 7 == 3
    job = jobs[second % len(jobs)]
    if second % 3 == 0:
        await world.store.jobs.pause(world.caller, job.job_id)
    if second % 3 == 2:
        await world.store.jobs.resume(world.caller, jobs[second - 2].job_id, world.now_us())
