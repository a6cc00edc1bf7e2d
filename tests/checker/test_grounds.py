"""Each reason for not sending a run: what it rests on, and that it is found without that."""

import pytest
from msgspec.structs import replace
from tests.checker.check import check
from tests.checker.eventful import taken_over
from tests.checker.quiet import (
    DEFINITION,
    SECOND,
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
from tests.checker.records import Definition, Fault, FaultKind, History, Offset

UNSENT = {"token": None, "armed_at_us": None, "attempt": 0}


def defined(**fields: object) -> History:
    """The quiet history, of a job that is another."""
    definition = replace(DEFINITION, **fields)
    return replace(quiet(), requests=(request("create", 0, definition=definition),))


def unsent(history: History, seconds: float, **fields: object) -> History:
    """One of its runs was never sent."""
    history = without(history, seconds, arrival_only=True)
    return changed_run(history, seconds, **UNSENT | fields)


def skipped(history: History, reason: str | None, **fields: object) -> History:
    return unsent(history, 30, state="skipped", skip_reason=reason, **fields)


def busy(history: History) -> History:
    """The run of 20 s is not over before 31 s."""
    history = changed_arrival(history, 20, answered_us=at(31))
    return changed_run(history, 20, finished_at_us=at(31))


def late_by(seconds: float) -> dict[str, object]:
    return {"finished_at_us": at(30 + seconds), "missed_since_us": at(30), "missed_count": 1}


@pytest.mark.parametrize("reason", [None, "overlap", "paused", "edited", "deleted", "boredom"])
def test_no_run_is_skipped_for_nothing(reason: str | None) -> None:
    assert "groundless" in check(skipped(quiet(), reason)).names


def test_an_overlap_needs_another_run_that_is_live() -> None:
    assert "groundless" not in check(skipped(busy(quiet()), "overlap")).names
    assert "groundless" in check(skipped(busy(defined(overlap="allow")), "overlap")).names


def test_the_end_of_a_run_is_known_at_once_unless_another_shard_has_it_in_hand() -> None:
    over = changed_run(skipped(quiet(), "overlap"), 20, finished_at_us=at(28.5))
    assert "groundless" in check(over).names
    assert "groundless" not in check(changed_run(over, 20, shard="another")).names
    long_over = changed_run(over, 20, shard="another", finished_at_us=at(27.9))
    assert "groundless" in check(long_over).names


def test_a_busy_machine_knows_the_end_of_a_run_as_soon() -> None:
    over = changed_run(skipped(quiet(), "overlap"), 20, finished_at_us=at(28.5))
    assert "groundless" in check(replace(over, transit_us=SECOND)).names


@pytest.mark.parametrize(
    ("kind", "told", "is_found"),
    [
        ("store", {}, True),
        ("freeze", {}, False),
        ("store", {"reported": "ok", "reported_us": at(20.5)}, False),
    ],
    ids=["told", "frozen", "reported to the API"],
)
def test_what_a_worker_has_told_a_shard_is_known_while_the_store_is_away(
    kind: FaultKind, told: dict[str, object], is_found: bool
) -> None:
    away = Fault(kind=kind, from_us=at(20.4), until_us=at(29.5))
    history = replace(skipped(quiet(), "overlap"), faults=(away,))
    history = changed_arrival(history, 20, **told)
    assert ("groundless" in check(history).names) is is_found


@pytest.mark.parametrize(
    ("ended_s", "is_found"), [(44, False), (34, True), (20, True)], ids=["next", "same", "before"]
)
def test_a_run_overlaps_with_one_that_was_about_to_be_sent_by_a_former_owner(
    ended_s: int, is_found: bool
) -> None:
    """The run of 20 s is never sent: another shard takes over at 35 s, and its job is deleted."""
    history = skipped(taken_over(and_also(quiet(), request("delete", 44))), "overlap")
    ended = {"state": "skipped", "skip_reason": "deleted", "finished_at_us": at(ended_s)}
    history = changed_run(without(history, 20, arrival_only=True), 20, **ended)
    found = {one.due_us for one in check(history).findings if one.name == "groundless"}
    assert (at(30) in found) is is_found


@pytest.mark.parametrize(
    ("reason", "policy"), [("misfire_skip", "skip"), ("superseded", "once"), ("max_missed", "all")]
)
def test_a_misfire_is_past_its_grace_and_by_its_policy(reason: str, policy: str) -> None:
    history = defined(misfire=policy, grace_us=15 * SECOND, max_missed=1)
    assert "groundless" not in check(skipped(history, reason, **late_by(16))).names
    assert "groundless" in check(skipped(history, reason, **late_by(14))).names
    history = defined(misfire="all" if policy == "skip" else "skip", grace_us=15 * SECOND)
    assert "groundless" in check(skipped(history, reason, **late_by(16))).names


def test_what_is_superseded_has_somebody_who_fires_for_it() -> None:
    history = defined(grace_us=5 * SECOND)
    assert "groundless" in check(skipped(history, "superseded", **late_by(6))).names


@pytest.mark.parametrize(("count", "is_found"), [(2, False), (1, True)])
def test_a_skip_stands_for_all_due_times_that_were_to_fire(count: int, is_found: bool) -> None:
    """Those of 40 s and 50 s were to fire for that of 30 s, and are themselves skipped later."""
    history = defined(misfire="all", grace_us=5 * SECOND, max_missed=2)
    history = skipped(history, "max_missed", finished_at_us=at(55))
    summary = {"state": "skipped", "skip_reason": "max_missed", "finished_at_us": at(85)}
    missed = {"missed_since_us": at(60 - 10 * count), "missed_count": count}
    history = without(unsent(history, 50, **summary, **missed), 40)
    found = {one.due_us for one in check(history).findings if one.name == "groundless"}
    assert (at(30) in found) is is_found


@pytest.mark.parametrize(
    ("fields", "is_found"),
    [
        ({"written_us": at(56)}, False),
        ({"written_us": at(45)}, True),
        ({"written_us": at(56), "result": "failed"}, True),
        ({}, True),
    ],
    ids=["in_time", "too_early", "rolled_back", "over_rest"],
)
def test_a_cancelled_job_may_have_missed_what_was_to_fire(
    fields: dict[str, object], is_found: bool
) -> None:
    """Those of 40 s and 50 s were to fire for that of 30 s. A transaction cancels the job before
    that, and only the first of them is told."""
    history = defined(misfire="all", grace_us=5 * SECOND, max_missed=2)
    history = skipped(history, "max_missed", finished_at_us=at(55))
    cancelled = {"state": "skipped", "skip_reason": "deleted", "finished_at_us": at(56)}
    missed = {"missed_since_us": at(40), "missed_count": 1}
    history = unsent(history, 40, **cancelled, **missed)
    for seconds in range(50, 91, 10):
        history = without(history, seconds)
    history = and_also(history, request("delete", 56, **fields))
    found = {one.due_us for one in check(history).findings if one.name == "groundless"}
    assert (at(30) in found) is is_found


def test_a_window_has_to_have_passed() -> None:
    history = defined(window_us=15 * SECOND)
    assert "groundless" not in check(skipped(history, "past_window", **late_by(16))).names
    assert "groundless" in check(skipped(history, "past_window", **late_by(14))).names


def test_a_withdrawal_is_of_when_somebody_asked_for_it() -> None:
    paused = and_also(skipped(quiet(), "paused", finished_at_us=at(25)), request("pause", 25))
    assert "groundless" not in check(paused).names
    assert "groundless" in check(changed_run(paused, 30, finished_at_us=at(28))).names
    refused = and_also(skipped(quiet(), "paused"), request("pause", 30, result="failed"))
    assert "groundless" in check(refused).names


def set_back(history: History) -> History:
    """At 38 s the clock shows 13 s again."""
    return replace(history, offsets=(Offset(from_us=at(38), offset_us=-25 * SECOND),))


def test_a_ground_holds_at_one_of_the_instants_that_had_the_time() -> None:
    """The clock shows 25 s twice, at 25 s and at 50 s."""
    skip = set_back(skipped(quiet(), "paused", finished_at_us=at(25)))
    assert "groundless" not in check(and_also(skip, request("pause", 25))).names
    assert "groundless" not in check(and_also(skip, request("pause", 50))).names
    assert "groundless" in check(and_also(skip, request("pause", 20))).names
    assert "groundless" in check(and_also(skip, request("pause", 45))).names


def test_an_end_by_a_clock_that_was_set_back_is_of_when_the_worker_said_so() -> None:
    """The run of 20 s ends when the clock shows 20 s: the first time, or the second, at 45 s."""
    skip = set_back(skipped(quiet(), "overlap"))
    assert "groundless" in check(skip).names
    assert "groundless" not in check(changed_arrival(skip, 20, answered_us=at(45))).names


def test_a_worker_that_wants_no_more_pauses_its_job() -> None:
    history = changed_arrival(skipped(quiet(), "paused"), 20, answer="gone")
    history = changed_run(history, 20, state="dead")
    assert "groundless" not in check(history).names


def test_nothing_is_cancelled_without_a_request() -> None:
    cancelled = unsent(quiet(), 30, state="cancelled")
    assert "groundless" in check(cancelled).names
    asked = and_also(cancelled, request("cancel", 25, due_us=at(30), in_time=True))
    assert "groundless" not in check(asked).names
    another = and_also(cancelled, request("cancel", 25, due_us=at(40), in_time=True))
    assert "groundless" in check(another).names


def test_a_run_that_was_cancelled_before_its_job_was_paused_is_not_invented() -> None:
    cancelled = unsent(quiet(), 30, state="cancelled", finished_at_us=at(25))
    paused = and_also(cancelled, request("pause", 28))
    assert at(30) in {one.due_us for one in check(paused).findings if one.name == "invented"}
    asked = and_also(paused, request("cancel", 25, due_us=at(30), in_time=True))
    assert at(30) not in {one.due_us for one in check(asked).findings if one.name == "invented"}


def test_a_run_is_cancelled_in_favour_of_another_by_that_policy_alone() -> None:
    history = changed_run(quiet(), 30, state="cancelled", finished_at_us=at(40))
    create = request("create", 0, definition=replace(DEFINITION, overlap="cancel"))
    assert "groundless" not in check(replace(history, requests=(create,))).names
    assert "groundless" in check(history).names


def test_a_run_is_cancelled_in_favour_of_one_that_is_withdrawn_as_it_waits_for_a_place() -> None:
    create = request("create", 0, definition=replace(DEFINITION, overlap="cancel"))
    history = replace(quiet(), requests=(create, request("delete", 44)))
    history = changed_run(history, 30, state="cancelled", finished_at_us=at(40))
    for seconds, is_found in ((44, False), (35, True)):
        withdrawn = {"state": "skipped", "skip_reason": "deleted", "finished_at_us": at(seconds)}
        story = changed_run(without(history, 40, arrival_only=True), 40, **withdrawn)
        grounds = {one.due_us for one in check(story).findings if one.name == "groundless"}
        assert (at(30) in grounds) is is_found


@pytest.mark.parametrize(("queue", "is_found"), [("due", False), (None, True)])
def test_an_overlap_may_be_with_a_run_that_waits_for_a_worker(
    queue: str | None, is_found: bool
) -> None:
    """It is armed again at 35 s, when it is late."""
    history = defined(queue=queue, misfire="skip", grace_us=10 * SECOND)
    late = {"state": "skipped", "skip_reason": "misfire_skip", "finished_at_us": at(35)}
    history = changed_run(without(history, 20, arrival_only=True), 20, attempt=0, **late)
    found = check(skipped(history, "overlap", finished_at_us=at(30))).findings
    assert (at(30) in {one.due_us for one in found if one.name == "groundless"}) is is_found


@pytest.mark.parametrize("answer", ["rejected", "gone"])
def test_what_its_worker_refuses_is_dead(answer: str) -> None:
    history = changed_run(quiet(), 30, state="dead")
    assert "groundless" not in check(changed_arrival(history, 30, answer=answer)).names


@pytest.mark.parametrize("answer", ["ok", "accepted", "none"])
def test_what_its_worker_does_not_refuse_is_not_dead(answer: str) -> None:
    history = changed_run(defined(max_attempts=1), 30, state="dead")
    assert "groundless" in check(changed_arrival(history, 30, answer=answer)).names


def test_nothing_is_dead_that_was_not_sent() -> None:
    assert "groundless" in check(unsent(quiet(), 30, state="dead")).names


def test_what_may_not_be_called_is_dead_and_never_succeeds() -> None:
    history = defined(is_forbidden=True)
    assert "groundless" not in check(unsent(history, 30, state="dead")).names
    assert "phantom" in check(unsent(history, 30, state="succeeded")).names


def tried(attempts: int, most: int) -> History:
    """The run of 30 s fails so often, and is dead."""
    failed = [
        arrival(
            30, at_us=us, answered_us=us, answer="failed", attempt=n + 1, token=token(1, 30 + n)
        )
        for n in range(attempts)
        for us in (at(30 + n),)
    ]
    dead = run(
        30,
        state="dead",
        attempt=attempts,
        token=token(1, 29 + attempts),
        finished_at_us=at(30 + attempts),
    )
    definition: Definition = replace(DEFINITION, max_attempts=most, overlap="allow")
    history = replace(quiet(), requests=(request("create", 0, definition=definition),))
    return and_also(without(history, 30), dead, *failed)


def test_a_run_is_dead_after_its_last_attempt_and_not_before() -> None:
    assert check(tried(4, most=4)).findings == []
    assert check(tried(3, most=4)).names == {"groundless"}
    assert check(tried(5, most=4)).names == {"tried_too_often"}
