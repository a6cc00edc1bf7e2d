"""A database that went back in time: what was committed in a loss is forgotten, and nothing else.

Invariant: a request that was acknowledged in a loss may have been undone; nobody knows, as if its
answer had not come. What was acknowledged before or after it holds.
"""

from msgspec.structs import replace
from tests.checker.records import Arrival, Fault, History, Request
from tests.checker.times import SECOND_US

TRUSTED_US = 5 * SECOND_US  # a lease: so long a shard may go by what the database does not know


def losses(history: History) -> list[Fault]:
    return [fault for fault in history.faults if fault.kind == "loss"]


def is_in_loss(history: History, request: Request) -> bool:
    """Whether a request was committed in a loss, or may have been."""
    return any(overlaps(loss, request) for loss in losses(history))


def overlaps(loss: Fault, request: Request) -> bool:
    return request.sent_us <= loss.until_us and request.answered_us >= loss.from_us


def with_doubts(history: History) -> History:
    """The history as clients know it after a loss: of what was acknowledged in it nobody knows."""
    if not losses(history):
        return history
    requests = (
        replace(one, result="unknown") if one.result == "ok" and is_in_loss(history, one) else one
        for one in history.requests
    )
    return replace(history, requests=tuple(requests))


def is_forgotten(history: History, job: str, at_us: int) -> bool:
    """Whether a loss may have taken the run that arrived then: what its client asked for is lost.

    A run of a job that is still there is claimed again, and is in the tables for that.
    """
    asked = [one for one in history.requests if one.job == job and one.result != "failed"]
    return any(
        at_us <= loss.until_us + TRUSTED_US
        and any(one.sent_us <= loss.until_us and one.answered_us >= loss.from_us for one in asked)
        for loss in losses(history)
    )


def loss_of_acceptance(history: History, arrival: Arrival) -> Fault | None:
    """The loss in which an outcome may have been written that a worker knows to be written."""
    said_us, known_us = arrival.answered_us, arrival.accepted_us
    if said_us is None or known_us is None:
        return None
    for loss in losses(history):
        if said_us <= loss.until_us + SECOND_US and loss.from_us - SECOND_US <= known_us:
            return loss
    return None
