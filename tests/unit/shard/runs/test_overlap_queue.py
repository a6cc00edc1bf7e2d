"""The queue of waiting runs, compared with a plain sorted list."""

from random import Random
from uuid import UUID

import pytest
from tests.unit.shard.armed_runs import armed

from wheelsched.core.model import Lane
from wheelsched.shard.runs import overlap_queue
from wheelsched.shard.runs.armed_run import ArmedRun
from wheelsched.shard.runs.overlap_queue import BLOCK, OverlapQueue

JOB = UUID(int=1)


def order(run: ArmedRun) -> tuple[bool, int]:
    return run.lane is Lane.LATE, run.key.due_us


def test_runs_stay_in_order_while_others_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overlap_queue, "BLOCK", 3)
    random = Random(7)
    queue, runs = OverlapQueue(), list[ArmedRun]()
    for due_us in random.sample(range(1, 1_000), 300):
        run = armed(due_us, job_id=JOB, lane=random.choice([Lane.ON_TIME, Lane.LATE]))
        assert not queue.discard(run)
        queue.add(run)
        runs = sorted([*runs, run], key=order)
        if random.random() < 0.4:
            gone = random.choice([runs[0], random.choice(runs)])
            assert queue.discard(gone)
            assert not queue.discard(gone)
            runs.remove(gone)
        assert bool(queue) == bool(runs)
        assert list(queue) == runs
        if runs:
            assert queue.first is runs[0]
            wanted = random.randrange(len(runs))
            assert queue.ahead_of(runs[wanted]) == wanted
    for run in random.sample(runs, len(runs)):
        assert queue.discard(run)
    assert not queue
    assert queue.ahead_of(armed(1, job_id=JOB)) == 0


def test_another_attempt_of_a_queued_run_is_not_in_the_queue() -> None:
    queue = OverlapQueue()
    queue.add(armed(1, job_id=JOB))
    assert not queue.discard(armed(1, job_id=JOB))


def test_operations_visit_a_small_part_of_a_long_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    look = overlap_queue._order

    def counting(run: ArmedRun) -> tuple[bool, int]:
        nonlocal looks
        looks += 1
        return look(run)

    queue = OverlapQueue()
    runs = [armed(due_us, job_id=JOB, lane=Lane.LATE) for due_us in range(20 * BLOCK)]
    for run in runs:
        queue.add(run)
    monkeypatch.setattr(overlap_queue, "_order", counting)
    for run in (runs[0], runs[-1], runs[len(runs) // 2]):
        queue.ahead_of(run)
        assert queue.discard(run)
        queue.add(run)
    assert looks < 9 * 40
    assert max(map(len, queue._blocks)) < 2 * BLOCK
