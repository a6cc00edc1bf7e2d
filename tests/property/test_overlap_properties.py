"""Random arrivals and endings of one job's runs: how many are ever live at once."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from wheelsched.core.model import Lane, RunKey, Trigger
from wheelsched.core.policies.overlap import Fire, Queue, decide
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy

JOB_ID = UUID(int=7)

arrivals = st.tuples(st.sampled_from(Trigger), st.sampled_from(Lane))
endings = st.none()


@given(
    st.sampled_from(OnOverlap),
    st.none() | st.integers(1, 4),
    st.lists(arrivals | endings, max_size=60),
)
def test_live_runs_never_exceed_the_limit_and_none_that_waits_is_forgotten(
    choice: OnOverlap, max_concurrent: int | None, steps: list[tuple[Trigger, Lane] | None]
) -> None:
    policy = OverlapPolicy(policy=choice, max_concurrent=max_concurrent)
    live: list[RunKey] = []
    waiting: list[tuple[Lane, int, Trigger]] = []

    def must_wait(trigger: Trigger, lane: Lane, due_us: int, ahead: int) -> bool:
        decision = decide(policy, trigger=trigger, lane=lane, live=live, ahead=ahead)
        if isinstance(decision, Fire):
            for cancelled in decision.cancel:
                live.remove(cancelled)
            live.append(RunKey(JOB_ID, due_us))
        assert len(live) <= policy.limit
        return isinstance(decision, Queue)

    for due_us, step in enumerate(steps):
        if step is not None:
            trigger, lane = step
            ahead = sum(lane is Lane.LATE or other is Lane.ON_TIME for other, _, _ in waiting)
            if must_wait(trigger, lane, due_us, ahead):
                waiting.append((lane, due_us, trigger))
        elif live:
            live.pop(0)
        waiting.sort(key=lambda run: (run[0] is Lane.LATE, run[1]))
        while waiting:
            lane, waited_us, trigger = waiting[0]
            if must_wait(trigger, lane, waited_us, ahead=0):
                break
            waiting.pop(0)

    assert not waiting or len(live) == policy.limit
