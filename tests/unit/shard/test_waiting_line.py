"""The line of runs that wait for their turn, against a plain sorted list."""

from random import Random
from uuid import UUID

import pytest
from tests.unit.shard.runs import armed

from wheelsched.core.model import Lane
from wheelsched.shard import waiting_line
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.waiting_line import BLOCK, WaitingLine

JOB = UUID(int=1)


def turn(run: ArmedRun) -> tuple[bool, int]:
    return run.lane is Lane.LATE, run.key.due_us


def test_runs_stand_in_the_order_of_their_turns_whatever_comes_and_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_line, "BLOCK", 3)
    random = Random(7)
    line, runs = WaitingLine(), list[ArmedRun]()
    for due_us in random.sample(range(1, 1_000), 300):
        run = armed(due_us, job_id=JOB, lane=random.choice([Lane.ON_TIME, Lane.LATE]))
        assert not line.discard(run)
        line.add(run)
        runs = sorted([*runs, run], key=turn)
        if random.random() < 0.4:
            gone = random.choice([runs[0], random.choice(runs)])
            assert line.discard(gone)
            assert not line.discard(gone)
            runs.remove(gone)
        assert bool(line) == bool(runs)
        assert list(line) == runs
        if runs:
            assert line.first is runs[0]
            wanted = random.randrange(len(runs))
            assert line.ahead_of(runs[wanted]) == wanted
    for run in random.sample(runs, len(runs)):
        assert line.discard(run)
    assert not line
    assert line.ahead_of(armed(1, job_id=JOB)) == 0


def test_another_attempt_of_a_run_in_line_is_not_in_it() -> None:
    line = WaitingLine()
    line.add(armed(1, job_id=JOB))
    assert not line.discard(armed(1, job_id=JOB))


def test_however_long_it_is_little_of_it_is_looked_at_and_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    look = waiting_line._turn

    def counting(run: ArmedRun) -> tuple[bool, int]:
        nonlocal looks
        looks += 1
        return look(run)

    line = WaitingLine()
    runs = [armed(due_us, job_id=JOB, lane=Lane.LATE) for due_us in range(20 * BLOCK)]
    for run in runs:
        line.add(run)
    monkeypatch.setattr(waiting_line, "_turn", counting)
    for run in (runs[0], runs[-1], runs[len(runs) // 2]):
        line.ahead_of(run)
        assert line.discard(run)
        line.add(run)
    assert looks < 9 * 40
    assert max(map(len, line._blocks)) < 2 * BLOCK
