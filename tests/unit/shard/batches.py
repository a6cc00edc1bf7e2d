"""Batches as the fair queue sees them, with plain numbers for runs."""

from uuid import UUID

from wheelsched.core.model import Lane, Target
from wheelsched.ports import Route


class Parcel:
    """A batch that can be told from any other, also when it is empty."""

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

    def __len__(self) -> int:
        return len(self.runs)


def tenant(number: int) -> UUID:
    return UUID(int=number)


def route(tenant_id: UUID, host: str = "a.example", path: str = "/") -> Route:
    origin = f"https://{host}"
    return Route(tenant_id=tenant_id, target=Target(url=origin + path), origin=origin)
