"""Histories in which something happens to the quiet one, by which it may be right or wrong."""

from msgspec.structs import replace
from tests.checker.quiet import (
    DEFINITION,
    PARTITION,
    SECOND,
    SHARD,
    START,
    and_also,
    arrival,
    at,
    changed_arrival,
    changed_run,
    request,
    run,
    token,
    without,
)
from tests.checker.records import Fault, History, Life, Offset, Ownership, PartitionRow


def with_skip_policy(history: History) -> History:
    return and_also(
        without(history, 30),
        arrival(30, at_us=at(30), answer="ok", answered_us=at(43)),
        run(30, finished_at_us=at(43)),
    )


def with_cancel_policy(history: History, again: float = 35) -> History:
    """The run of 20 s fails, and is tried again later."""
    create = request("create", 0, definition=replace(DEFINITION, overlap="cancel"))
    history = changed_arrival(replace(history, requests=(create,)), 20, answer="failed")
    return and_also(
        changed_run(history, 20, token=token(1, 99), attempt=2, finished_at_us=at(again)),
        arrival(20, attempt=2, token=token(1, 99), at_us=at(again), answered_us=at(again)),
    )


def and_set_back(history: History) -> History:
    """At 19.5 s, to 4.5 s: the run of 10 s was sent before that of 20 s, and seems to come."""
    return replace(history, offsets=(Offset(from_us=at(19.5), offset_us=-15 * SECOND),))


def taken_over(history: History) -> History:
    """At 35 s, by another shard."""
    first, second = "shard", "second"
    return replace(
        history,
        ownerships=(
            Ownership(
                partition=PARTITION,
                epoch=1,
                shard=first,
                from_us=START,
                until_us=at(35),
                ended="taken_over",
            ),
            Ownership(partition=PARTITION, epoch=2, shard=second, from_us=at(35)),
        ),
        lives=(
            Life(from_us=START, until_us=at(34), shards=(first,)),
            Life(from_us=START, shards=(second,)),
        ),
        partitions=(PartitionRow(partition=PARTITION, epoch=2),),
        runs=tuple(
            replace(one, token=_second(one.due_us), shard=second) if one.due_us > at(35) else one
            for one in history.runs
        ),
        arrivals=tuple(
            replace(one, token=_second(one.due_us)) if one.due_us > at(35) else one
            for one in history.arrivals
        ),
    )


def _second(due_us: int) -> int:
    """The token of a run under the second owner."""
    return token(2, (due_us - START) // SECOND)


def killed(history: History, after_s: float) -> History:
    """At 19 s; the run of 20 s is fired by another shard so many seconds later."""
    fired_us = at(19 + after_s)
    late = {"at_us": fired_us, "answered_us": fired_us, "token": token(2, 1)}
    history = replace(
        taken_over(history),
        faults=(Fault(kind="crash", from_us=at(19), until_us=at(19), shard=SHARD),),
        lives=(
            Life(from_us=START, until_us=at(19), is_killed=True, shards=(SHARD,)),
            Life(from_us=START, shards=("second",)),
        ),
    )
    history = without(without(history, 30), 20)
    return and_also(
        history,
        arrival(20, **late),
        run(20, token=token(2, 1), shard="second", armed_at_us=at(36), finished_at_us=fired_us),
        run(30, state="skipped", skip_reason="overlap", token=None, armed_at_us=None),
    )
