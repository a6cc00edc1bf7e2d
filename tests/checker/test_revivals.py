"""Runs that were retried by hand: what another life explains, and what it does not."""

import pytest
from msgspec.structs import replace
from tests.checker.check import check
from tests.checker.quiet import (
    DEFINITION,
    and_also,
    arrival,
    at,
    changed_arrival,
    changed_run,
    quiet,
    request,
    run,
    token,
)
from tests.checker.records import Fault, History

ONCE = replace(DEFINITION, max_attempts=1, overlap="allow")


def retried(*asked: float, state: str = "dead", again: float = 45, **fields: object) -> History:
    """The run of 20 s ended badly; somebody has it retried, and it succeeds."""
    history = replace(quiet(), requests=(request("create", 0, definition=ONCE),))
    history = changed_arrival(history, 20, answer="failed")
    end = run(20, state=state, finished_at_us=at(20))
    second = {"token": token(1, 77), "at_us": at(again), "answered_us": at(again)}
    history = and_also(history, arrival(20, **second))
    history = changed_run(
        history,
        20,
        attempt=2,
        attempts_before=1,
        token=token(1, 77),
        armed_at_us=at(again - 0.1),
        finished_at_us=at(again),
    )
    requests = (request("retry", each, due_us=at(20), **fields) for each in asked)
    return and_also(replace(history, overwritten=(end,)), *requests)


def test_a_retry_gives_another_life() -> None:
    assert check(retried(44)).names == set()


def test_a_redrive_does_so_too() -> None:
    redrive = request("redrive", 44, filled_us=(at(20),))
    assert check(and_also(retried(), redrive)).names == set()
    other = request("redrive", 44, filled_us=(at(30),))
    assert "retried_unasked" in check(and_also(retried(), other)).names


def test_one_that_nobody_has_heard_of_may_have_been_done() -> None:
    assert check(retried(44, result="unknown")).names == set()


def test_nothing_else_does() -> None:
    assert {"retried_unasked", "stale_write", "sent_after_end"} <= check(retried()).names
    assert "retried_unasked" in check(retried(44, result="failed")).names


def test_each_is_done_once() -> None:
    history = retried(44)
    twice = replace(history, overwritten=history.overwritten * 2)
    assert "retried_unasked" in check(twice).names


def test_each_that_was_acknowledged_is_done() -> None:
    assert "lost" in check(retried(44, 50)).names
    assert "lost" in check(and_also(quiet(), request("retry", 44, due_us=at(20)))).names


def test_a_life_does_not_begin_before_it_is_asked_for() -> None:
    assert "sent_after_end" in check(retried(46)).names


def test_attempts_are_counted_anew() -> None:
    history = changed_arrival(retried(44), 20, answer="failed")
    create = request("create", 0, definition=replace(ONCE, max_attempts=3))
    end = replace(history.overwritten[0], attempt=3)
    history = replace(history, requests=(create, *history.requests[1:]), overwritten=(end,))
    history = changed_run(history, 20, state="dead", attempts_before=3)
    assert "groundless" in check(changed_run(history, 20, attempt=5)).names
    assert "groundless" not in check(changed_run(history, 20, attempt=6)).names


@pytest.mark.parametrize(
    ("retried_at", "names"), [(44.0, set()), (10.0, {"fired_while_cancelled"})]
)
def test_a_cancel_holds_until_then(retried_at: float, names: set[str]) -> None:
    cancel = request("cancel", 15, due_us=at(20), in_time=True)
    history = replace(retried(retried_at, state="cancelled"), arrivals=())
    history = and_also(history, cancel, arrival(20, token=token(1, 77), at_us=at(45)))
    assert check(history).names & {"fired_while_cancelled"} == names


@pytest.mark.parametrize(("cancelled_s", "is_found"), [(40, False), (47, True)])
def test_what_was_sent_before_it_was_asked_for_is_of_the_life_before(
    cancelled_s: int, is_found: bool
) -> None:
    """The token of a second attempt, at 30 s, was forgotten when its run was cancelled."""
    history = retried(44, state="cancelled")
    create = request("create", 0, definition=replace(ONCE, max_attempts=2, overlap="skip"))
    second = {"attempt": 2, "token": token(1, 50), "at_us": at(30), "answer": "failed"}
    end = replace(history.overwritten[0], finished_at_us=at(cancelled_s))
    loss = Fault(kind="loss", from_us=at(28), until_us=at(31))
    armed = run(20, state="armed", token=token(1, 50), finished_at_us=None)
    history = replace(
        history,
        requests=(create, *history.requests[1:]),
        overwritten=(end,),
        forgotten=(armed,),
        faults=(loss,),
    )
    found = check(and_also(history, arrival(20, **second))).findings
    assert (("overlapping", at(20)) in {(one.name, one.due_us) for one in found}) is is_found
