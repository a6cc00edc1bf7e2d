import pytest

from wheelsched.errors import AttemptOvertaken
from wheelsched.worker import FencingCheck


def test_tokens_of_a_run_grow_or_stay() -> None:
    fencing = FencingCheck()
    for token in (1, 1, 2, 7):
        fencing.check("run", token)
    with pytest.raises(AttemptOvertaken):
        fencing.check("run", 6)
    fencing.check("run", 7)


def test_an_attempt_that_was_only_recorded_overtakes_the_earlier_ones() -> None:
    fencing = FencingCheck()
    for token in (9, 8):
        fencing.record("run", token)
    fencing.check("run", 9)
    with pytest.raises(AttemptOvertaken):
        fencing.check("run", 8)


def test_runs_are_apart() -> None:
    fencing = FencingCheck()
    fencing.check("one", 9)
    fencing.check("other", 1)


def test_the_run_that_was_seen_least_recently_is_forgotten() -> None:
    fencing = FencingCheck(capacity=2)
    for run in ("one", "two", "one", "three"):
        fencing.check(run, 9)
    with pytest.raises(AttemptOvertaken):
        fencing.check("one", 8)
    fencing.check("two", 8)
