"""A database that went back in time explains what it has forgotten, and nothing else."""

import pytest
from msgspec.structs import replace
from tests.checker.check import check
from tests.checker.quiet import (
    DEFINITION,
    JOB,
    PARTITION,
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
from tests.checker.records import Fault, History, Ownership, PartitionRow, Schedule

LATE_JOB = "registered in the loss"
ONCE = replace(DEFINITION, schedule=Schedule(kind="at", at_us=at(36)), mark=1)


def losing(history: History, since: float = 28, until: float = 35) -> History:
    """What was committed between two seconds is forgotten; the next owner has another epoch."""
    loss = Fault(kind="loss", from_us=at(since), until_us=at(until))
    store = Fault(kind="store", from_us=at(until), until_us=at(until + 1))
    first = replace(history.ownerships[0], until_us=at(until + 1), ended="left")
    second = Ownership(partition=PARTITION, epoch=9, shard="second", from_us=at(until + 1))

    def later(seconds: float) -> int:
        return token(9, int(seconds))

    return replace(
        history,
        faults=(*history.faults, loss, store),
        ownerships=(first, second),
        partitions=(PartitionRow(partition=PARTITION, epoch=9),),
        runs=tuple(
            replace(one, token=later(n), shard="second") if one.due_us > at(until) else one
            for n, one in enumerate(history.runs, 1)
        ),
        arrivals=tuple(
            replace(one, token=later(n)) if one.due_us > at(until) else one
            for n, one in enumerate(history.arrivals, 1)
        ),
    )


def sent_again(seconds: float, epoch: int = 9) -> History:
    """The run of so many seconds went out before the loss ended, and again after it."""
    again = {"token": token(epoch, 77), "at_us": at(36.5), "answered_us": at(36.5)}
    history = and_also(losing(quiet()), arrival(seconds, **again))
    fields = {"token": token(epoch, 77), "shard": "second", "armed_at_us": at(36.4)}
    return changed_run(history, seconds, **fields, finished_at_us=at(36.5))


def test_what_was_done_in_it_is_done_again() -> None:
    report = check(sent_again(30))
    assert report.names == set()
    assert report.duplicates == {"loss": 1}


def test_what_was_done_before_it_is_not() -> None:
    assert "duplicated" in check(sent_again(20)).names


def pulled_again(again: float = 36.5, **first: object) -> History:
    """A worker that pulls has done the run of 20 s by 21 s, and it is handed out again later as the
    same attempt, as if nobody had ever had it."""
    history = sent_again(20)
    pulled = {"queue": "work", "worker": "w", "answered_us": at(21)}
    earlier, later = (one for one in history.arrivals if one.due_us == at(20))
    earlier = replace(earlier, **pulled | first)
    later = replace(later, **pulled | {"at_us": at(again), "answered_us": at(36.5)})
    return and_also(without(history, 20, arrival_only=True), earlier, later)


def test_an_outcome_that_was_accepted_in_it_is_lost_however_late_its_worker_could_report_it() -> (
    None
):
    report = check(pulled_again(accepted_us=at(29)))
    assert report.names == set()
    assert report.duplicates == {"loss": 1}


def test_an_outcome_that_was_accepted_in_it_holds_until_the_database_goes_back() -> None:
    assert "duplicated" in check(pulled_again(again=34, accepted_us=at(29))).names


@pytest.mark.parametrize("kind", ["loss", "crash", "freeze", "store", "false_death"])
def test_only_a_loss_explains_why_an_accepted_outcome_is_gone(kind: str) -> None:
    history = pulled_again(accepted_us=at(21.5))
    assert "duplicated" in check(history).names
    fault = Fault(kind=kind, from_us=at(20.5), until_us=at(22))  # type: ignore[arg-type]
    report = check(replace(history, faults=(*history.faults, fault)))
    assert ("duplicated" in report.names) is (kind != "loss")


@pytest.mark.parametrize("kind", ["worker", "api", "link"])
def test_an_outcome_that_could_not_be_reported_before_it_is_not_written(kind: str) -> None:
    history = pulled_again()
    assert "duplicated" in check(history).names
    fault = Fault(kind=kind, from_us=at(20.5), until_us=at(29))  # type: ignore[arg-type]
    report = check(replace(history, faults=(*history.faults, fault)))
    assert report.names == set()
    assert report.duplicates == {"loss": 1}


def registered(seconds: float) -> History:
    """A job that is acknowledged, fires at 36 s, and is gone at the end."""
    create = request("create", seconds, job=LATE_JOB, definition=ONCE)
    fired = {"job": LATE_JOB, "key": "late", "token": token(1, 78), "at_us": at(36)}
    return and_also(losing(quiet()), create, arrival(36, **fired, answered_us=at(36)))


def test_a_job_that_was_registered_in_it_is_gone() -> None:
    report = check(registered(30))
    assert report.names == set()
    assert report.forgotten_jobs == 1


@pytest.mark.parametrize("seconds", [20, 35.5])
def test_a_job_that_was_registered_before_or_after_it_is_not(seconds: float) -> None:
    assert {"vanished", "unrecorded"} <= check(registered(seconds)).names


def test_nobody_goes_by_what_was_forgotten_for_longer_than_a_lease() -> None:
    history = registered(30)
    fired = {"job": LATE_JOB, "key": "late", "token": token(1, 79), "at_us": at(41)}
    assert "unrecorded" in check(and_also(history, arrival(36, **fired))).names


def test_a_pause_that_was_acknowledged_in_it_may_not_hold() -> None:
    assert check(and_also(losing(quiet()), request("pause", 30))).names == set()
    before = and_also(losing(quiet()), request("pause", 27))
    assert "fired_while_paused" in check(before).names


@pytest.mark.parametrize(("counter", "is_found"), [(30, False), (29, True)])
def test_what_gave_way_before_it_is_armed_anew_in_it(counter: int, is_found: bool) -> None:
    """The run of 30 s is withdrawn at 27 s; that its job is resumed at 29 s is forgotten."""
    withdrawn = {"state": "skipped", "skip_reason": "paused", "finished_at_us": at(27)}
    history = changed_run(quiet(), 30, **withdrawn, token=token(1, 29), attempt=0)
    history = and_also(history, request("pause", 27), request("resume", 29))
    history = changed_arrival(history, 30, token=token(1, counter))
    assert ("sent_after_end" in check(losing(history)).names) is is_found
    assert "sent_after_end" in check(history).names


def test_a_token_is_not_issued_again() -> None:
    """The lost run and the one that is claimed after it carry the same."""
    other = {"job": LATE_JOB, "key": "once", "at_us": at(34), "token": token(1, 78)}
    create = request("create", 30, job=LATE_JOB, definition=ONCE)
    lost = run(36, job=LATE_JOB, token=token(1, 78), armed_at_us=at(33))
    history = replace(losing(quiet()), forgotten=(lost,))
    history = and_also(history, create, arrival(36, **other, answered_us=at(34)))
    assert "token_reused" not in check(history).names
    again = and_also(without(history, 50), run(50, token=token(1, 78)))
    again = and_also(again, arrival(50, job=JOB, token=token(1, 78)))
    assert "token_reused" in check(again).names


def test_a_due_time_that_was_sent_and_forgotten_may_be_skipped_over() -> None:
    """After it, the misfire policy counts it among those that were missed."""
    history = without(losing(quiet()), 30)
    skip = run(30, state="skipped", skip_reason="overlap", token=None, armed_at_us=None)
    covered = replace(skip, due_us=at(35), missed_since_us=at(30), missed_count=1)
    history = and_also(history, arrival(30), covered)
    assert "unrecorded" not in check(history).names
    before = and_also(without(history, 20), arrival(20), replace(covered, missed_since_us=at(20)))
    assert "unrecorded" in check(before).names


def test_a_forgotten_owner_sends_nothing_once_it_can_know() -> None:
    history = losing(quiet())
    first = replace(history.ownerships[0], until_us=at(35), ended="forgotten")
    history = replace(history, ownerships=(first, *history.ownerships[1:]))
    assert "sent_from_memory" not in check(history).names
    late = and_also(history, arrival(36, at_us=at(39), token=token(1, 36)))
    assert "sent_from_memory" in check(late).names


def test_an_epoch_is_not_issued_again() -> None:
    history = losing(quiet())
    lost = Ownership(partition=PARTITION, epoch=9, shard="third", from_us=at(33))
    findings = check(replace(history, ownerships=(*history.ownerships, lost))).names
    assert {"two_owners", "epoch_order"} <= findings


def test_an_end_that_was_forgotten_was_there() -> None:
    """Two runs were done one after the other, and are both done again after the loss."""
    again = {"token": token(9, 78), "at_us": at(37.5), "answered_us": at(37.5)}
    history = losing(sent_again(20, 9), since=18)
    history = and_also(history, arrival(30, **again))
    fields = {"token": token(9, 78), "shard": "second", "armed_at_us": at(36.4)}
    history = changed_run(history, 30, **fields, finished_at_us=at(37.5))
    assert "overlapping" not in check(history).names
