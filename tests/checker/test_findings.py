"""Each finding, by the least that has to be wrong for it."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.checker.check import check
from tests.checker.eventful import killed, taken_over, with_cancel_policy, with_skip_policy
from tests.checker.quiet import (
    DEFINITION,
    SECOND,
    SHARD,
    START,
    and_also,
    arrival,
    at,
    changed_arrival,
    changed_run,
    quiet,
    request,
    run,
    token,
    without,
)
from tests.checker.records import Fault, History, Life, Schedule
from tests.checker.test_queues import BROKEN

MANUAL = at(15) + 1


def with_owner(history: History, **fields: object) -> History:
    return replace(history, ownerships=(replace(history.ownerships[0], **fields),))


def changed_job(history: History, **fields: object) -> History:
    return replace(history, jobs=tuple(replace(job, **fields) for job in history.jobs))


CASES: dict[str, Callable[[History], History]] = {
    "lost": lambda history: without(history, 30),
    "stuck": lambda history: changed_run(
        without(history, 30, arrival_only=True), 30, state="armed", finished_at_us=None
    ),
    "vanished": lambda history: replace(history, jobs=()),
    "uncommitted": lambda history: and_also(
        replace(history, requests=()), request("create", 0, definition=DEFINITION, result="failed")
    ),
    "unplanned": lambda history: changed_job(history, state="unplanned", next_due_us=None),
    "misjudged": lambda history: changed_job(history, state="refused", error="wrong"),
    "groundless": lambda history: changed_run(
        without(history, 30, arrival_only=True), 30, state="dead"
    ),
    "invented": lambda history: and_also(history, run(33), arrival(33)),
    "miscounted": lambda history: changed_run(
        without(history, 30, arrival_only=True),
        30,
        state="skipped",
        skip_reason="misfire",
        missed_count=2,
        missed_since_us=at(30),
    ),
    "requested_twice": lambda history: and_also(
        history,
        request("trigger", 15, due_us=MANUAL),
        run(15, due_us=MANUAL, trigger="manual"),
        run(15, due_us=MANUAL + 1, trigger="manual", state="cancelled"),
        arrival(15, due_us=MANUAL, scheduled_us=MANUAL, trigger="manual"),
    ),
    "retried_unasked": lambda history: replace(
        history, overwritten=(run(30, state="dead", token=token(1, 29)),)
    ),
    "misfilled": lambda history: and_also(
        history,
        request(
            "backfill", 45, since_us=at(20), until_us=at(31), filled_us=(at(45) + 1, at(45) + 2)
        ),
        run(45, due_us=at(45) + 1, trigger="backfill", state="cancelled", backfill_of_us=at(20)),
        run(45, due_us=at(45) + 2, trigger="backfill", state="cancelled", backfill_of_us=at(20)),
    ),
    "contradicted": lambda history: changed_arrival(history, 30, trigger="manual"),
    "unrecorded": lambda history: and_also(without(history, 30), arrival(30)),
    "phantom": lambda history: without(history, 30, arrival_only=True),
    "early": lambda history: changed_arrival(history, 30, at_us=at(29.9)),
    "duplicated": lambda history: and_also(
        changed_run(taken_over(history), 30, token=token(2, 1), finished_at_us=at(36)),
        arrival(30, at_us=at(36), answered_us=at(36), token=token(2, 1)),
    ),
    "tried_too_often": lambda history: changed_arrival(history, 30, attempt=5),
    "armed_twice": lambda history: and_also(
        changed_run(history, 30, token=token(1, 31), finished_at_us=at(31)),
        arrival(30, at_us=at(31), answered_us=at(31), token=token(1, 31)),
    ),
    "token_reused": lambda history: and_also(history, arrival(30)),
    "token_order": lambda history: and_also(
        history, arrival(30, at_us=at(30) + 1, token=token(1, 29))
    ),
    "key_changed": lambda history: and_also(
        history, arrival(30, at_us=at(30) + 1, key="another", token=token(1, 31))
    ),
    "key_shared": lambda history: changed_arrival(history, 30, key="job:20"),
    "sent_after_end": lambda history: changed_run(history, 30, finished_at_us=at(29.9)),
    "skipped_and_sent": lambda history: changed_run(
        history, 30, state="skipped", skip_reason="overlap"
    ),
    "stale_write": lambda history: changed_arrival(history, 30, answer="failed"),
    "two_owners": lambda history: replace(history, ownerships=history.ownerships * 2),
    "epoch_order": lambda history: replace(
        history,
        ownerships=(
            replace(history.ownerships[0], epoch=2, until_us=at(1), ended="released"),
            replace(history.ownerships[0], from_us=at(2)),
        ),
    ),
    "wrong_epoch": lambda history: changed_arrival(history, 30, token=token(2, 30)),
    "wrong_owner": lambda history: changed_run(history, 30, shard="another"),
    "armed_after_release": lambda history: with_owner(history, until_us=at(55), ended="released"),
    "sent_after_takeover": lambda history: changed_arrival(
        taken_over(history), 40, token=token(1, 40)
    ),
    "sent_from_memory": lambda history: replace(
        taken_over(history),
        ownerships=tuple(
            replace(one, ended="forgotten", until_us=at(31)) if one.until_us else one
            for one in taken_over(history).ownerships
        ),
        arrivals=(*taken_over(history).arrivals, arrival(34, token=token(1, 34))),
    ),
    "robbed": lambda history: replace(
        taken_over(history), lives=(Life(from_us=START, shards=(SHARD,)),)
    ),
    "fired_while_paused": lambda history: and_also(history, request("pause", 35)),
    "fired_while_cancelled": lambda history: and_also(
        history, request("cancel", 25, due_us=at(30), in_time=True)
    ),
    "untold": lambda history: and_also(
        without(history, 40), request("pause", 29.5), request("resume", 31)
    ),
    "old_self": lambda history: and_also(
        history, request("edit", 25, definition=replace(DEFINITION, mark=2))
    ),
    "overlapping": with_skip_policy,
    "outlived": with_cancel_policy,
    "cross_tenant": lambda history: changed_arrival(history, 30, tenant="another"),
    "late": lambda history: changed_run(
        changed_arrival(history, 30, at_us=at(33), answered_us=at(33)), 30, finished_at_us=at(33)
    ),
    "too_late": lambda history: changed_run(
        changed_arrival(history, 30, at_us=at(48), answered_us=at(48)), 30, finished_at_us=at(48)
    ),
    "slow_takeover": lambda history: killed(history, 17),
    "mislabelled": lambda history: changed_arrival(
        changed_arrival(history, 30, at_us=at(40), answered_us=at(40)),
        40,
        at_us=at(30),
        answered_us=at(30),
    ),
}


def test_a_quiet_history_has_none() -> None:
    assert check(quiet()).findings == []


@pytest.mark.parametrize("name", CASES)
def test_it_is_found(name: str) -> None:
    assert name in check(CASES[name](quiet())).names


def test_every_finding_that_is_described_has_a_case() -> None:
    from tests.checker import check as described

    assert described.__doc__ is not None
    rows = [line.split("|")[1] for line in described.__doc__.splitlines() if line[:3] == "| `"]
    names = {name.strip(" `") for row in rows for name in row.split(",")}
    of_queues = {finding for finding, _ in BROKEN.values()}
    assert names == CASES.keys() | of_queues


@pytest.mark.parametrize(("crowd", "is_found"), [(0, True), (5_000, True), (6_000, False)])
def test_a_crowd_may_take_as_long_as_the_design_gives_it(crowd: int, is_found: bool) -> None:
    """18 s late is 2 s more than there is for one run. Who comes after it is no excuse for it."""
    for arrives_s, is_excused in ((47, not is_found), (49, False)):
        others = (
            arrival(30, job=f"other-{number}", at_us=at(arrives_s)) for number in range(crowd)
        )
        history = and_also(CASES["too_late"](quiet()), *others)
        assert ("too_late" in check(history).names) is not is_excused


@pytest.mark.parametrize(
    ("number", "arrives_s", "is_found"), [(30, 30, False), (31, 30, True), (30, 36, True)]
)
def test_a_cancel_that_came_too_late_excuses_what_was_claimed_before_for_a_while(
    number: int, arrives_s: float, is_found: bool
) -> None:
    """The run of 30 s is cancelled as it goes out, and arrives: as it was claimed, or anew."""
    history = and_also(
        changed_run(quiet(), 30, state="cancelled", finished_at_us=at(29.9)),
        request("cancel", 29.8, due_us=at(30), in_time=False),
    )
    arrives_us = at(arrives_s)
    names = check(
        changed_arrival(
            history, 30, token=token(1, number), at_us=arrives_us, answered_us=arrives_us
        )
    ).names
    assert ("sent_after_end" in names) is is_found


@pytest.mark.parametrize(
    ("state", "number", "is_found"),
    [("cancelled", 30, False), ("cancelled", 31, True), ("succeeded", 30, True)],
)
def test_what_was_on_its_way_when_it_was_cancelled_arrives(
    state: str, number: int, is_found: bool
) -> None:
    history = changed_run(quiet(), 30, state=state, finished_at_us=at(29.6))
    history = changed_arrival(history, 30, token=token(1, number))
    assert "sent_after_end" in check(history).names
    names = check(replace(history, transit_us=SECOND // 2)).names
    assert ("sent_after_end" in names) is is_found


@pytest.mark.parametrize(("seconds", "is_found"), [(41.5, False), (43, True), (50, True)])
def test_what_is_late_comes_on_the_dot_of_another_by_chance(seconds: float, is_found: bool) -> None:
    """That of 30 at 40. If that of 40 comes soon after, on no dot, both are plainly late."""
    history = changed_arrival(quiet(), 30, at_us=at(40), answered_us=at(40))
    history = changed_arrival(history, 40, at_us=at(seconds), answered_us=at(seconds))
    names = check(history).names
    assert "late" in names
    assert ("mislabelled" in names) is is_found


def test_what_waits_for_its_jitter_is_not_late() -> None:
    """So it excuses nobody whose label is wrong."""
    schedule = Schedule(kind="at", at_us=at(29), jitter_us=1_500_000)
    definition = replace(DEFINITION, schedule=schedule)
    history = and_also(
        CASES["mislabelled"](quiet()),
        request("create", 0, job="jittered", definition=definition),
        arrival(29, job="jittered", key="jittered", at_us=at(30.3), answered_us=at(30.3)),
        run(29, job="jittered"),
    )
    assert "mislabelled" in check(history).names


def test_a_takeover_is_measured_from_the_kill() -> None:
    assert check(killed(quiet(), 16.5)).takeovers_us == [16_500_000]


def test_a_takeover_is_measured_from_when_somebody_lived() -> None:
    history = killed(quiet(), 17)
    nobody = (history.lives[0], replace(history.lives[1], from_us=at(30)))
    report = check(replace(history, lives=nobody))
    assert report.takeovers_us == [6_000_000]
    assert "slow_takeover" not in report.names


@pytest.mark.parametrize(("leaving_s", "is_found"), [(15, False), (None, True)])
def test_who_is_leaving_takes_nothing_over(leaving_s: int | None, is_found: bool) -> None:
    """Another shard is killed at 80 s, asked to leave before or not; the next comes at 30 s."""
    history = killed(quiet(), 17)
    leaving_us = None if leaving_s is None else at(leaving_s)
    third = Life(
        from_us=START, until_us=at(80), leaving_us=leaving_us, is_killed=True, shards=("third",)
    )
    lives = (history.lives[0], replace(history.lives[1], from_us=at(30)), third)
    assert ("slow_takeover" in check(replace(history, lives=lives)).names) is is_found


def test_a_takeover_is_not_judged_while_something_else_is_broken() -> None:
    history = killed(quiet(), 17)
    cut = Fault(kind="store", from_us=at(20), until_us=at(25))
    report = check(replace(history, faults=(*history.faults, cut)))
    assert report.takeovers_us == []
    assert "slow_takeover" not in report.names


def refused(**fields: object) -> History:
    """A job that cannot be meant, and was never run."""
    history = changed_job(quiet(), state="refused", error="61 is no minute", next_due_us=None)
    asked = request("create", 0, is_wrong=True, **fields)
    return replace(history, requests=(asked,), runs=(), arrivals=())


def test_an_invalid_draft_is_refused_with_a_reason() -> None:
    assert check(refused()).findings == []
    assert check(changed_job(refused(), error=None)).names == {"misjudged"}
    assert check(changed_job(refused(), state="active")).names == {"misjudged"}


def test_what_was_rolled_back_may_not_be_there() -> None:
    assert check(refused(result="failed")).names == {"uncommitted"}
    assert check(replace(refused(result="failed"), jobs=())).findings == []


def test_what_a_transaction_wrote_is_due_from_then_on() -> None:
    written = request("create", 0, definition=DEFINITION, answered_us=at(15), written_us=at(0))
    history = replace(quiet(), requests=(written,))
    assert check(history).findings == []
    assert check(without(history, 10)).names == {"lost"}
    late = {"at_us": at(15.1), "answered_us": at(15.1)}
    history = changed_run(changed_arrival(history, 10, **late), 10, finished_at_us=at(15.1))
    assert check(history).findings == []


def test_a_withdrawn_run_was_due_at_some_time() -> None:
    withdrawn = {"state": "skipped", "skip_reason": "paused", "token": None, "armed_at_us": None}
    paused = and_also(without(quiet(), 90), request("pause", 85))
    history = and_also(paused, run(110, **withdrawn))
    assert "invented" not in check(history).names
    assert "invented" in check(and_also(paused, run(113, **withdrawn))).names


def test_a_run_that_was_carried_is_cancelled_with_its_job() -> None:
    ended = {"state": "cancelled", "attempt": 1, "finished_at_us": at(91)}
    deleted = and_also(without(quiet(), 90), request("delete", 85))
    armed = {"armed_at_us": at(84)}
    assert "invented" not in check(and_also(deleted, run(110, **ended, **armed))).names
    assert "invented" in check(and_also(deleted, run(110, **ended))).names  # armed after that
    assert "invented" in check(and_also(deleted, run(113, **ended, **armed))).names
    paused = and_also(without(quiet(), 90), request("pause", 85))
    assert "invented" in check(and_also(paused, run(110, **ended))).names


def test_a_run_of_a_request_nobody_knows_the_end_of_is_permitted_once() -> None:
    asked = request("trigger", 15, result="unknown")
    made = [run(15, due_us=MANUAL + n, trigger="manual", state="cancelled") for n in range(2)]
    cancels = [request("cancel", 14, due_us=one.due_us) for one in made]
    history = and_also(quiet(), asked, *cancels)
    assert check(and_also(history, made[0])).findings == []
    assert check(and_also(history, *made)).names == {"requested_twice"}
