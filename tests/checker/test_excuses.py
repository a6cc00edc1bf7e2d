"""What a fault explains, and where its explanation ends."""

from msgspec.structs import replace
from tests.checker.check import check
from tests.checker.eventful import taken_over
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
from tests.checker.records import ClockError, Fault, History, Life, Offset
from tests.checker.test_findings import CASES


def test_a_duplicate_that_a_fault_explains_is_counted_instead() -> None:
    history = CASES["duplicated"](quiet())
    crash = Fault(kind="crash", from_us=at(30.5), until_us=at(30.5), shard=SHARD)
    report = check(replace(history, faults=(crash,)))
    assert "duplicated" not in report.names
    assert report.duplicates == {"crash": 1}


def test_a_duplicate_is_not_explained_by_what_befell_another_shard() -> None:
    history = CASES["duplicated"](quiet())
    crash = Fault(kind="crash", from_us=at(30.5), until_us=at(30.5), shard="third")
    assert "duplicated" in check(replace(history, faults=(crash,))).names


def test_a_fault_is_that_of_a_process_under_each_of_its_names() -> None:
    history = CASES["duplicated"](quiet())
    crash = Fault(kind="crash", from_us=at(30.5), until_us=at(30.5), shard="before")
    lives = (Life(from_us=START, shards=("before", SHARD)),)
    report = check(replace(history, faults=(crash,), lives=lives))
    assert report.duplicates == {"crash": 1}


def test_an_error_of_a_clock_excuses_no_more_than_can_be_true() -> None:
    said = ClockError(at_us=at(30), error_us=3_600_000_000)
    slow = Fault(kind="store", from_us=at(20), until_us=at(25))
    history = replace(quiet(), clock_errors=(said,), faults=(slow,))
    assert "early" not in check(changed_arrival(history, 30, at_us=at(27))).names
    assert "early" in check(changed_arrival(history, 30, at_us=at(26))).names


def test_without_a_fault_a_clock_may_not_be_said_to_be_far_off() -> None:
    said = ClockError(at_us=at(30), error_us=1_000_000)
    history = replace(quiet(), clock_errors=(said,))
    assert "early" not in check(changed_arrival(history, 30, at_us=at(29.95))).names
    assert "early" in check(changed_arrival(history, 30, at_us=at(29.5))).names


def test_a_short_stall_of_the_machine_explains_what_is_late_and_no_duplicate() -> None:
    stall = Fault(kind="stall", from_us=at(29), until_us=at(30.6))
    report = check(replace(CASES["duplicated"](quiet()), faults=(stall,)))
    assert "duplicated" in report.names
    assert "late" not in check(replace(CASES["late"](quiet()), faults=(stall,))).names


def tried_again_after(seconds: float) -> History:
    """The first attempt at 30 s has no answer, and its job has ten seconds for one."""
    patient = replace(DEFINITION, timeout_us=10_000_000)
    history = replace(quiet(), requests=(request("create", 0, definition=patient),))
    again_us = at(30 + seconds)
    history = changed_arrival(history, 30, answer="none", answered_us=None)
    history = changed_run(
        history, 30, token=token(1, 31), attempt=2, finished_at_us=again_us + 1_000
    )
    again = {"at_us": again_us, "answered_us": again_us, "attempt": 2, "token": token(1, 31)}
    return and_also(history, arrival(30, **again))


def test_who_does_not_answer_has_until_the_timeout() -> None:
    assert "duplicated" not in check(tried_again_after(10)).names
    assert "duplicated" in check(tried_again_after(5)).names


def sent_before_and_after_a_takeover(answered_s: float) -> History:
    """The run of 20 s is answered by then, and sent again at 45 s; that of 40 s is in between."""
    history = without(without(taken_over(quiet()), 20), 30)
    late = {"at_us": at(45), "answered_us": at(45), "token": token(2, 2)}
    history = and_also(
        history,
        arrival(20, answer="accepted", answered_us=at(answered_s)),
        arrival(20, **late),
        run(20, token=token(2, 2), shard="second", armed_at_us=at(36), finished_at_us=at(45)),
    )
    crash = Fault(kind="crash", from_us=at(30), until_us=at(30), shard=SHARD)
    return replace(history, faults=(crash,))


def test_a_run_whose_sending_the_next_owner_could_not_know_of_is_not_live() -> None:
    assert "overlapping" not in check(sent_before_and_after_a_takeover(29.9)).names


def test_a_run_is_not_forgotten_by_what_befell_another_shard() -> None:
    history = sent_before_and_after_a_takeover(29.9)
    other = tuple(replace(fault, shard="third") for fault in history.faults)
    assert "overlapping" in check(replace(history, faults=other)).names


def test_a_run_whose_sending_was_written_is_live_after_a_takeover() -> None:
    assert "overlapping" in check(sent_before_and_after_a_takeover(20)).names


def crashed(seconds: float, **fields: object) -> Fault:
    us = at(seconds)
    return Fault(**{"kind": "crash", "from_us": us, "until_us": us, "shard": SHARD} | fields)  # type: ignore[arg-type] # by name


def test_a_duplicate_is_not_explained_by_a_crash_after_the_outcome_was_written() -> None:
    history = CASES["duplicated"](quiet())
    assert "duplicated" not in check(replace(history, faults=(crashed(30.9),))).names
    assert "duplicated" in check(replace(history, faults=(crashed(31.1),))).names


def test_an_outcome_waits_as_long_as_others_of_its_shard() -> None:
    """Of the run by hand at 29 s, that was answered at once, nothing was written before 33 s."""
    due_us = at(29)
    history = and_also(
        CASES["duplicated"](quiet()),
        request("trigger", 29, due_us=due_us),
        arrival(29, trigger="manual"),
        run(29, trigger="manual", finished_at_us=at(33)),
    )
    assert "duplicated" not in check(replace(history, faults=(crashed(34.9),))).names
    assert "duplicated" in check(replace(history, faults=(crashed(35.1),))).names


def test_an_outcome_does_not_wait_because_the_clock_was_set_back() -> None:
    """The clock shows 29 s again at 59 s: the run by hand ended the first time."""
    history = and_also(
        CASES["duplicated"](quiet()),
        request("trigger", 29, due_us=at(29)),
        arrival(29, trigger="manual"),
        run(29, trigger="manual"),
    )
    back = replace(history, offsets=(Offset(from_us=at(50), offset_us=-30 * SECOND),))
    assert "duplicated" not in check(replace(back, faults=(crashed(30.9),))).names
    assert "duplicated" in check(replace(back, faults=(crashed(31.1),))).names


def test_a_duplicate_is_not_explained_by_what_was_over_before_it_was_sent() -> None:
    history = CASES["duplicated"](quiet())
    lasting = crashed(20, kind="store", until_us=at(30.1), shard=None)
    assert "duplicated" not in check(replace(history, faults=(lasting,))).names
    over = crashed(20, kind="store", until_us=at(29.9), shard=None)
    assert "duplicated" in check(replace(history, faults=(over,))).names


def test_an_end_that_was_written_over_was_an_end() -> None:
    history = replace(CASES["duplicated"](quiet()), faults=(crashed(30.5),))
    was = run(30, finished_at_us=at(30.2))
    found = check(replace(history, overwritten=(was,))).names
    assert {"sent_after_end", "stale_write"} <= found


def test_an_end_is_one_although_the_clock_comes_to_its_time_again() -> None:
    """The run of 30 s is sent again at 40 s. At 60 s the clock shows 30 s for the second time."""
    history = and_also(quiet(), arrival(30, at_us=at(40), answered_us=at(40)))
    back = replace(history, offsets=(Offset(from_us=at(50), offset_us=-30 * SECOND),))
    ends = [one.due_us for one in check(back).findings if one.name == "sent_after_end"]
    assert ends == [at(30)]


def test_what_was_withdrawn_may_be_due_after_all() -> None:
    was = run(30, state="skipped", skip_reason="paused", finished_at_us=at(28))
    asked = (request("pause", 28), request("resume", 28.5))
    assert check(and_also(replace(quiet(), overwritten=(was,)), *asked)).findings == []


def test_a_cancelled_run_is_sent_only_if_that_was_told() -> None:
    history = changed_run(quiet(), 30, state="cancelled", finished_at_us=at(29.9))
    told = and_also(history, request("cancel", 29.9, due_us=at(30), in_time=False))
    assert check(told).findings == []
    assert "sent_after_end" in check(history).names


def test_a_claim_counts_as_whose_it_was_before_another_adopted_the_run() -> None:
    history = taken_over(quiet())
    was = run(40, token=token(1, 40), armed_at_us=at(39), state="armed", finished_at_us=None)
    assert check(history).findings == []
    assert check(replace(history, overwritten=(was,))).names == {"armed_after_release"}


def test_who_has_accepted_a_run_may_be_silent_until_the_timeout() -> None:
    def again_after(seconds: float) -> History:
        return changed_first(tried_again_after(seconds), answer="accepted", answered_us=at(31))

    assert "duplicated" not in check(again_after(11)).names
    assert "duplicated" in check(again_after(10.9)).names


def changed_first(history: History, **fields: object) -> History:
    """With another first attempt of the run of 30 s."""
    place = next(n for n, one in enumerate(history.arrivals) if one.due_us == at(30))
    arrivals = list(history.arrivals)
    arrivals[place] = replace(arrivals[place], **fields)
    return replace(history, arrivals=tuple(arrivals))


def test_a_run_that_is_sent_again_finds_no_other_live() -> None:
    """The sending of the run of 20 s was forgotten, but not that of 40 s, which is live still."""
    history = sent_before_and_after_a_takeover(29.9)
    assert "overlapping" not in check(history).names
    history = changed_run(history, 40, finished_at_us=at(49))
    assert "overlapping" in check(changed_arrival(history, 40, answered_us=at(49))).names


def fired(history: History, seconds: float, *, due_s: float) -> set[str]:
    """What is found if a run was fired then; and at 30 s somebody has set the clock."""
    history = replace(history, offsets=(Offset(from_us=at(30), offset_us=0),))
    return check(changed_arrival(history, due_s, at_us=at(seconds))).names


def test_a_step_of_the_clock_explains_nothing_before_it() -> None:
    assert "early" in fired(quiet(), 29.9, due_s=30)


def test_a_step_of_the_clock_is_noticed_within_seconds() -> None:
    assert "early" not in fired(quiet(), 34.9, due_s=40)
    assert "early" in fired(quiet(), 35.1, due_s=40)


def test_a_step_is_noticed_later_by_who_cannot_read_the_clock() -> None:
    cut = Fault(kind="store", from_us=at(31), until_us=at(33))
    assert "early" not in fired(replace(quiet(), faults=(cut,)), 37.9, due_s=40)
    assert "early" in fired(replace(quiet(), faults=(cut,)), 38.1, due_s=40)


def early(history: History) -> set[int]:
    """The seconds of the runs that came too early."""
    found = check(history).findings
    return {(one.due_us - START) // SECOND for one in found if one.name == "early"}


def test_a_small_step_is_made_good_by_and_by() -> None:
    """Back by 50 ms: who does not know yet fires so much early."""
    back = replace(quiet(), offsets=(Offset(from_us=at(30), offset_us=-50_000),))
    assert early(back) == {60, 70, 80, 90}
    assert 40 in early(changed_arrival(back, 40, at_us=at(39.98)))


def test_what_was_due_before_the_clock_was_set_back_is_not_early_after() -> None:
    back = replace(quiet(), offsets=(Offset(from_us=at(31), offset_us=-20 * SECOND),))
    again = {"at_us": at(45), "answered_us": at(45), "attempt": 2, "token": token(1, 31)}
    history = and_also(changed_arrival(back, 30, answer="failed"), arrival(30, **again))
    assert 30 not in early(history)


def test_a_retry_of_what_began_before_a_step_was_noticed_is_not_early() -> None:
    """Set back at 29.5 s; begun at 30 s by whoever has not noticed, and sent again at 38 s."""
    back = replace(quiet(), offsets=(Offset(from_us=at(29.5), offset_us=-30 * SECOND),))
    failed = changed_arrival(back, 30, answer="failed")
    again = {"at_us": at(38), "answered_us": at(38), "token": token(1, 31)}
    assert 30 not in early(and_also(failed, arrival(30, attempt=2, **again)))
    assert 30 in early(and_also(failed, arrival(30, attempt=1, **again)))


def test_another_attempt_after_the_clock_was_set_back_is_as_the_first() -> None:
    """At 50 s the clock shows 30 s again, after an edit; at 55 s the run is tried again."""
    back = replace(quiet(), offsets=(Offset(from_us=at(31), offset_us=-20 * SECOND),))
    edit = request("edit", 45, definition=replace(DEFINITION, mark=2))
    again = {"at_us": at(55), "answered_us": at(55), "attempt": 2, "token": token(1, 31)}
    history = and_also(changed_arrival(back, 30, answer="failed"), edit, arrival(30, **again))
    old = {one.due_us for one in check(history).findings if one.name == "old_self"}
    assert at(30) not in old
    history = and_also(without(back, 30), edit, arrival(30, **again), run(30))
    assert at(30) in {one.due_us for one in check(history).findings if one.name == "old_self"}


def test_who_has_not_noticed_a_step_back_may_fire_what_is_due_no_more() -> None:
    """The job is deleted before the database's clock comes to 40 s again."""
    back = replace(quiet(), offsets=(Offset(from_us=at(38), offset_us=-30 * SECOND),))
    history = and_also(back, request("delete", 44))
    invented = {one.due_us for one in check(history).findings if one.name == "invented"}
    assert at(40) not in invented
    assert at(50) in invented


def test_what_is_in_hand_when_the_clock_is_set_back_seems_to_come() -> None:
    """The job is deleted at 35 s, when the clock shows 10 s again: the run of 30 s is skipped."""
    deleted = {"state": "skipped", "skip_reason": "deleted", "finished_at_us": at(10)}
    history = changed_run(changed_arrival(quiet(), 30, answered_us=at(36)), 30, **deleted)
    assert "skipped_and_sent" in check(history).names

    def is_found(stepped_s: float) -> bool:
        step = Offset(from_us=at(stepped_s), offset_us=-25 * SECOND)
        return "skipped_and_sent" in check(replace(history, offsets=(step,))).names

    assert not is_found(33)
    assert not is_found(29)
    assert is_found(24)


def test_a_request_that_a_fault_held_back_is_done_after_it() -> None:
    """Its client waits for five seconds, and the database is out of reach for ten."""
    asked = request("trigger", 15, answered_us=at(20), result="unknown")
    manual = {"trigger": "manual", "due_us": at(25.4), "finished_at_us": at(25.5)}
    arrived = {"trigger": "manual", "due_us": at(25.4), "scheduled_us": at(25.4)}
    history = and_also(
        quiet(),
        asked,
        run(25, **manual),
        arrival(25, **arrived, at_us=at(25.5), answered_us=at(25.5)),
    )
    assert "requested_twice" in check(history).names
    held = Fault(kind="store", from_us=at(14.9), until_us=at(25))
    assert "requested_twice" not in check(replace(history, faults=(held,))).names
    before = Fault(kind="store", from_us=at(10), until_us=at(14))
    assert "requested_twice" in check(replace(history, faults=(before,))).names


def test_a_job_that_is_resumed_at_the_last_moment_may_be_due_or_not() -> None:
    """By the clock of who resumes it, which may be ahead of the database's by so little."""

    def is_lost(resumed_s: float) -> bool:
        history = and_also(quiet(), request("pause", 25), request("resume", resumed_s))
        return "lost" in check(without(history, 30)).names

    assert not is_lost(29.985)
    assert is_lost(29.9)


def test_a_worker_that_answers_too_late_is_left_alone_for_a_while() -> None:
    """So that its runs are late; one that answers at the last moment is not."""
    beside = replace(DEFINITION, overlap="allow", timeout_us=5 * SECOND)
    history = replace(quiet(), requests=(request("create", 0, definition=beside),))
    late = changed_arrival(history, 50, at_us=at(58), answered_us=at(58))
    assert "late" in check(changed_arrival(late, 20, answered_us=at(24))).names
    assert "late" not in check(changed_arrival(late, 20, answered_us=at(25))).names


def test_an_end_by_a_clock_that_was_set_back_is_none_of_later() -> None:
    """The runs of 40 s and 41 s end by the clock as it was, which the database's is behind."""
    skip = replace(
        DEFINITION, overlap="skip", schedule=replace(DEFINITION.schedule, cron="* * * * * *")
    )
    history = replace(quiet(), requests=(request("create", 0, definition=skip),))
    history = and_also(history, run(41), arrival(41))

    def overlaps(stepped_s: float) -> bool:
        step = Offset(from_us=at(stepped_s), offset_us=-30 * SECOND)
        found = check(replace(history, offsets=(step,))).findings
        return any((one.name, one.due_us) == ("overlapping", at(41)) for one in found)

    assert not overlaps(39.5)
    assert overlaps(33)
