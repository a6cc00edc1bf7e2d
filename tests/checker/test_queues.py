"""What the checker finds about runs of queues, and what it does not."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.checker.check import check
from tests.checker.quiet import (
    DEFINITION,
    HEALED,
    SECOND,
    TENANT,
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
from tests.checker.records import Arrival, Beat, Fault, Handful, History, Offer

QUEUE = "work"


def pulled() -> History:
    """The quiet history, of a job whose runs wait in a queue for an hour at most."""
    history = quiet()
    definition = replace(
        DEFINITION,
        url=f"queue:{QUEUE}",
        queue=QUEUE,
        claim_within_us=3_600 * SECOND,
        overlap="allow",
    )
    return replace(
        history,
        requests=(request("create", 0, definition=definition),),
        arrivals=tuple(map(got, range(10, 91, 10))),
    )


def got(seconds: float, **fields: object) -> Arrival:
    """A run that a worker on a stream got, did and reported at once."""
    common = {"url": f"queue:{QUEUE}", "queue": QUEUE, "worker": "w", "is_pushed": True}
    times = {"received_us": at(seconds), "accepted_us": at(seconds), "left_us": at(seconds)}
    return arrival(seconds, **common | times | fields)


def lost(seconds: float, **fields: object) -> Arrival:
    """One of which nobody has heard any more."""
    silent = {"answer": "none", "answered_us": None, "accepted_us": None, "left_us": None}
    return got(seconds, **silent | fields)


def tried_again(history: History, after_s: float, **first: object) -> History:
    """The run of 20 s is handed out again so many seconds later."""
    history = without(history, 20)
    again = {"at_us": at(20 + after_s), "answered_us": at(20 + after_s), "attempt": 2}
    return and_also(
        history,
        lost(20, **first),
        got(20, token=token(1, 99), **again),
        run(20, token=token(1, 99), attempt=2, finished_at_us=at(20 + after_s)),
    )


def beat(seconds: float, lease_s: float, *, is_held: bool = True) -> Beat:
    return Beat(
        sent_us=at(seconds),
        answered_us=at(seconds) + 5_000,
        lease_us=int(lease_s * SECOND),
        is_held=is_held,
    )


def with_fault(history: History, kind: str, from_s: float, until_s: float) -> History:
    fault = Fault(kind=kind, from_us=at(from_s), until_us=at(until_s))  # type: ignore[arg-type]
    return replace(history, faults=(*history.faults, fault))


def given_back(history: History, **later: object) -> History:
    """The run of 20 s is given back by its worker, and handed out again."""
    history = without(history, 20)
    return and_also(
        history,
        lost(20, received_us=None, given_back_us=at(20.5)),
        got(20, at_us=at(21), answered_us=at(21), **later),
        run(20, finished_at_us=at(21), **later),
    )


def waiting(history: History, until_s: float) -> History:
    """The run of 40 s is handed out so late."""
    late = {"at_us": at(until_s), "answered_us": at(until_s)}
    history = changed_arrival(history, 40, **late)
    return changed_run(history, 40, finished_at_us=at(until_s))


def with_offer(history: History, from_s: float, until_s: float) -> History:
    offer = Offer(
        worker="w", tenant=TENANT, queues=(QUEUE,), from_us=at(from_s), until_us=at(until_s)
    )
    return replace(history, offers=(offer,))


def within(history: History, claim_within_s: float) -> History:
    (create,) = history.requests
    assert create.definition is not None
    short = replace(create.definition, claim_within_us=int(claim_within_s * SECOND))
    return replace(history, requests=(replace(create, definition=short),))


def cancelled(history: History, **fields: object) -> History:
    """The run of 20 s is cancelled at 22 s, while a worker has it."""
    history = without(history, 20)
    return and_also(
        history,
        request("cancel", 22, due_us=at(20)),
        lost(20, **fields),
        run(20, state="cancelled", finished_at_us=at(22)),
    )


def superseded(history: History, *beats_s: float) -> History:
    """The run of 20 s is cancelled for that of 30 s, and its worker has it until 34 s."""
    (create,) = history.requests
    assert create.definition is not None
    cancel = replace(create.definition, overlap="cancel")
    history = replace(history, requests=(replace(create, definition=cancel),))
    beats = tuple(beat(beat_s, 5) for beat_s in beats_s)
    return and_also(
        without(history, 20),
        lost(20, told_us=at(34), left_us=at(34), beats=beats),
        run(20, state="cancelled", attempt=0, finished_at_us=at(30)),
    )


def dead_unclaimed(history: History, after_s: float) -> History:
    """No worker has got the run of 20 s."""
    history = without(history, 20)
    return and_also(history, run(20, state="dead", attempt=0, finished_at_us=at(20 + after_s)))


KEPT: dict[str, Callable[[History], History]] = {
    "nothing happens": lambda history: history,
    "again after its delivery lease": lambda history: tried_again(history, 5.1),
    "again after the lease of its heartbeat": lambda history: tried_again(
        history, 10.1, beats=(beat(22, 8),)
    ),
    "given back": given_back,
    "given back, and built again": lambda history: given_back(history, token=token(1, 98)),
    "given back, and lost with its link": lambda history: with_fault(
        given_back(history, attempt=2, token=token(1, 98)), "link", 20, 21
    ),
    "waits while there is no worker": lambda history: waiting(history, 47),
    "waits while links are cut": lambda history: with_fault(
        with_offer(waiting(history, 47), 30, 60), "link", 41, 46
    ),
    "dead when nobody claims it": lambda history: dead_unclaimed(within(history, 8), 8.5),
    "cancelled, and told": lambda history: cancelled(
        history, told_us=at(22.1), left_us=at(22.1), beats=(beat(21, 5),)
    ),
    "cancelled by a shard that is about to write it": lambda history: superseded(history, 25, 30.5),
    "cancelled by a shard that cannot write it yet": lambda history: with_fault(
        superseded(history, 25, 29.9, 32), "store", 29.5, 32.5
    ),
}

BROKEN: dict[str, tuple[str, Callable[[History], History]]] = {
    "before its delivery lease is over": (
        "handed_out_early",
        lambda history: tried_again(history, 3),
    ),
    "before the lease of its heartbeat is over": (
        "handed_out_early",
        lambda history: tried_again(history, 6, beats=(beat(22, 8),)),
    ),
    "before its delivery lease is over, although a shard has died": (
        "handed_out_early",
        lambda history: with_fault(tried_again(history, 3), "crash", 21, 21),
    ),
    "given back, and an attempt": (
        "attempt_wasted",
        lambda history: given_back(history, attempt=2, token=token(1, 98)),
    ),
    "told to be written, and is not": (
        "unwritten",
        lambda history: tried_again(
            history, 6, answer="ok", answered_us=at(20), accepted_us=at(20)
        ),
    ),
    "more than was asked for": (
        "overloaded",
        lambda history: replace(
            history, handfuls=(Handful(worker="w", at_us=HEALED, count=3, credits=2),)
        ),
    ),
    "not asked for": (
        "unasked",
        lambda history: changed_arrival(history, 20, is_unasked=True),
    ),
    "of another tenant": (
        "cross_tenant",
        lambda history: changed_arrival(history, 20, tenant="another"),
    ),
    "waits beside a worker": (
        "starved",
        lambda history: with_offer(waiting(history, 47), 30, 60),
    ),
    "waits longer than its job allows": (
        "outwaited",
        lambda history: within(waiting(history, 57), 8),
    ),
    "dead too early": ("groundless", lambda history: dead_unclaimed(within(history, 8), 5)),
    "cancelled, and its worker goes on": ("uncancelled", cancelled),
    "cancelled, and its heartbeat says nothing": (
        "uncancelled",
        lambda history: cancelled(history, beats=(beat(23, 5),)),
    ),
    "cancelled by a client, while shards cannot write": (
        "uncancelled",
        lambda history: with_fault(cancelled(history, beats=(beat(22.5, 5),)), "store", 21, 25),
    ),
    "cancelled by a shard, and its heartbeat says nothing": (
        "uncancelled",
        lambda history: superseded(history, 25, 31.1),
    ),
    "cancelled by a shard that could write it again": (
        "uncancelled",
        lambda history: with_fault(superseded(history, 25, 33.6), "store", 29.5, 32.5),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_promises_that_are_kept(name: str) -> None:
    assert check(KEPT[name](pulled())).findings == []


@pytest.mark.parametrize("name", BROKEN)
def test_promises_that_are_broken(name: str) -> None:
    finding, change = BROKEN[name]
    assert finding in check(change(pulled())).names


def test_a_lost_link_explains_no_second_worker() -> None:
    history = with_fault(tried_again(pulled(), 2), "link", 20.5, 21)
    assert {"handed_out_early"} <= check(history).names


def test_a_run_that_waits_is_skipped_while_its_job_is_paused() -> None:
    history = without(pulled(), 20)
    skip = run(20, state="skipped", skip_reason="paused", attempt=0, finished_at_us=at(28))
    paused = and_also(history, request("pause", 25), skip)
    assert "groundless" not in check(paused).names
    assert "groundless" in check(and_also(paused, request("resume", 26))).names
    assert "groundless" in check(and_also(history, skip)).names
