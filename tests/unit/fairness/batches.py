"""Batches as the fair queue sees them, with plain numbers for runs."""

from copy import copy
from typing import Self
from uuid import UUID

from wheelsched.core.model import HttpTarget, Lane, QueueTarget
from wheelsched.ports import Room, Route


class Parcel:
    """A batch that is compared by identity."""

    def __init__(
        self,
        route: Route,
        runs: int = 1,
        *,
        lane: Lane = Lane.ON_TIME,
        priority: int = 0,
        subject: str = "job",
    ) -> None:
        self.route = route
        self.subject = f"{subject} of {route.tenant_id} to {route.origin}"
        self.lane = lane
        self.priority = priority
        self.runs = list(range(runs))
        self.claim_by_us = 0

    def split(self, count: int) -> Self:
        first = copy(self)
        first.runs = self.runs[:count]
        del self.runs[:count]
        return first

    def __len__(self) -> int:
        return len(self.runs)


def tenant(number: int) -> UUID:
    return UUID(int=number)


def route(tenant_id: UUID, host: str = "a.example", path: str = "/") -> Route:
    origin = f"https://{host}"
    return Route(tenant_id=tenant_id, target=HttpTarget(url=origin + path), origin=origin)


def queue_route(tenant_id: UUID, room: Room, name: str = "work") -> Route:
    target = QueueTarget(queue=name)
    return Route(tenant_id=tenant_id, target=target, origin=f"queue {name}", batch=500, room=room)
