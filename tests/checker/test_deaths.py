"""Who is taken for dead: only who is, or could not renew; and what a lie about it explains."""

import pytest
from msgspec.structs import replace
from tests.checker.check import check
from tests.checker.eventful import taken_over
from tests.checker.quiet import SHARD, START, and_also, arrival, at, changed_run, quiet, run, token
from tests.checker.records import Fault, History, Life


def taken_alive(**fault: object) -> History:
    """The first shard lives on, and was taken over at 35 s after a fault, if there was one."""
    lives = (Life(from_us=START, shards=(SHARD,)), Life(from_us=START, shards=("second",)))
    history = replace(taken_over(quiet()), lives=lives)
    faults = (Fault(**fault),) if fault else ()  # type: ignore[arg-type] # by name
    return replace(history, faults=faults)


def test_no_shard_is_taken_over_because_a_connection_ended() -> None:
    assert "robbed" in check(taken_alive()).names
    ended = {"kind": "disconnect", "from_us": at(33), "until_us": at(34.5), "shard": SHARD}
    assert "robbed" in check(taken_alive(**ended)).names


@pytest.mark.parametrize(("shard", "seconds"), [(SHARD, 0.6), (None, 3.5)])
def test_who_could_not_renew_is_not_robbed(shard: str | None, seconds: float) -> None:
    fault = {"kind": "store", "from_us": at(34.9 - seconds), "until_us": at(34.9), "shard": shard}
    assert "robbed" not in check(taken_alive(**fault)).names


def test_a_short_outage_of_all_is_not_an_excuse() -> None:
    fault = {"kind": "store", "from_us": at(33), "until_us": at(34), "shard": None}
    assert "robbed" in check(taken_alive(**fault)).names


@pytest.mark.parametrize("shard", [SHARD, "second"])
def test_a_lie_explains_what_its_victim_sends_until_it_knows(shard: str) -> None:
    """The run of 30 s goes out again, under the next owner first and then under the former."""
    lie = {"kind": "false_death", "from_us": at(35), "until_us": at(40), "shard": shard}
    history = changed_run(
        taken_alive(**lie), 30, token=token(2, 7), shard="second", finished_at_us=at(35.2)
    )
    new = {"token": token(2, 7), "at_us": at(35.2), "answered_us": at(35.2)}
    old = {"token": token(1, 30), "at_us": at(35.4), "answered_us": at(35.4)}
    arrivals = tuple(one for one in history.arrivals if one.due_us != at(30))
    history = and_also(replace(history, arrivals=arrivals), arrival(30, **new), arrival(30, **old))
    found = {"sent_after_takeover", "token_order", "sent_after_end"}
    assert check(history).names & found == (set() if shard == SHARD else found)


@pytest.mark.parametrize(("epoch", "is_found"), [(2, False), (1, True)])
def test_a_lie_explains_an_overlap_with_a_run_of_the_next_owner(epoch: int, is_found: bool) -> None:
    """Under `overlap=skip` the former owner sends the run of 34 s at 36 s, while that of 30 s is
    live: the next owner has sent it again, or the former owner itself, which knew of it."""
    lie = {"kind": "false_death", "from_us": at(35), "until_us": at(40), "shard": SHARD}
    shard = "second" if epoch == 2 else SHARD
    history = changed_run(
        taken_alive(**lie), 30, token=token(epoch, 31), shard=shard, finished_at_us=at(39)
    )
    again = {"token": token(epoch, 31), "at_us": at(35.5), "answered_us": at(39)}
    own = {"token": token(1, 34), "at_us": at(36), "answered_us": at(36)}
    history = and_also(
        history,
        arrival(30, **again),
        arrival(34, **own),
        run(34, token=token(1, 34), finished_at_us=at(36)),
    )
    assert ("overlapping" in check(history).names) is is_found
