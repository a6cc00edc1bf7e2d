"""What finds that runs of a job met which must not, and what excuses it."""

import pytest
from msgspec.structs import replace
from tests.checker.check import check
from tests.checker.eventful import and_set_back, taken_over, with_cancel_policy, with_skip_policy
from tests.checker.quiet import (
    DEFINITION,
    SHARD,
    and_also,
    arrival,
    at,
    quiet,
    request,
    run,
    token,
    without,
)
from tests.checker.records import Fault


@pytest.mark.parametrize(
    ("policy", "is_found"), [("skip", True), ("queue", True), ("allow", False), ("cancel", False)]
)
def test_runs_overlap_where_each_waits_for_the_other(policy: str, is_found: bool) -> None:
    history = with_skip_policy(quiet())
    create = request("create", 0, definition=replace(DEFINITION, overlap=policy))
    names = check(replace(history, requests=(create,))).names
    assert ("overlapping" in names) is is_found


def test_what_is_tried_again_before_the_next_run_outlives_nothing() -> None:
    assert check(with_cancel_policy(quiet(), again=29)).findings == []
    assert "outlived" not in check(with_cancel_policy(quiet(), again=30.5)).names  # on its way
    assert "outlived" in check(with_cancel_policy(quiet(), again=31.5)).names
    assert "outlived" not in check(with_cancel_policy(and_set_back(quiet()), again=27)).names


def test_a_next_owner_may_not_know_that_a_run_was_sent() -> None:
    """The run of 20 s is sent again at 48 s, after that of 40 s, by who took over at 35 s."""

    def names(attempt: int) -> set[str]:
        history = taken_over(with_cancel_policy(quiet(), again=48))
        again = {"token": token(2, 9), "attempt": attempt}
        runs = (replace(one, **again) if one.attempt == 2 else one for one in history.runs)
        arrived = (replace(one, **again) if one.attempt == 2 else one for one in history.arrivals)
        return check(replace(history, runs=tuple(runs), arrivals=tuple(arrived))).names

    assert "outlived" not in names(attempt=1)
    assert "outlived" in names(attempt=2)


@pytest.mark.parametrize(
    ("begun_s", "ended", "is_found"),
    [(38, "taken_over", True), (41, "taken_over", False), (41, "released", True)],
)
def test_what_a_next_owner_has_begun_itself_ends_by_what_comes_after_that(
    begun_s: float, ended: str, is_found: bool
) -> None:
    """It sends the run of 20 s as if for the first time, that of 40 s, and then its retry. Of what
    was given over to it, it knows that it was sent."""
    history = with_cancel_policy(taken_over(quiet()), again=48)
    first, second = history.ownerships
    history = replace(history, ownerships=(replace(first, ended=ended), second))
    history = and_also(
        history, arrival(20, token=token(2, 1), at_us=at(begun_s), answered_us=at(begun_s))
    )
    arrived = (
        replace(one, token=token(2, 99)) if one.attempt == 2 else one for one in history.arrivals
    )
    names = check(replace(history, arrivals=tuple(arrived))).names
    assert ("outlived" in names) is is_found


@pytest.mark.parametrize(("attempt", "is_found"), [(1, False), (2, True)])
def test_a_next_owner_knows_of_a_further_attempt_that_there_was_one_before(
    attempt: int, is_found: bool
) -> None:
    """The run of 30 s was sent, which was unwritten at the takeover: it goes again, after that of
    40 s. If it had failed before, that was written."""
    crash = Fault(kind="crash", from_us=at(34), until_us=at(34), shard=SHARD)
    sent = {"attempt": attempt}
    history = replace(without(taken_over(quiet()), 30), faults=(crash,))
    history = and_also(
        history,
        *(arrival(30, attempt=number, answer="failed") for number in range(1, attempt)),
        arrival(30, token=token(1, 31), at_us=at(33.9), answered_us=None, answer="none", **sent),
        arrival(30, token=token(2, 5), at_us=at(43), answered_us=at(44), **sent),
        run(30, attempt=attempt, token=token(2, 5), shard="second", finished_at_us=at(44)),
    )
    assert ("overlapping" in check(history).names) is is_found


def test_a_next_owner_may_not_know_that_a_run_was_to_end() -> None:
    history = taken_over(with_cancel_policy(quiet(), again=36))
    later = (replace(one, token=token(2, 9)) if one.attempt == 2 else one for one in history.runs)
    arrived = (
        replace(one, token=token(2, 9)) if one.attempt == 2 else one for one in history.arrivals
    )
    history = replace(history, runs=tuple(later), arrivals=tuple(arrived))
    assert "outlived" not in check(history).names
