"""What everybody in a simulation shares."""

from collections.abc import Callable

from msgspec import Struct
from tests.sim.logbook import Logbook

from wheelsched.testing import MemoryStore, VirtualClock


class Scene(Struct, frozen=True):
    """The world as its workers and clients find it; luck is each one's own."""

    clock: VirtualClock
    store: MemoryStore
    database_us: Callable[[], int]
    logbook: Logbook
    zone: str | None  # where the clocks change
