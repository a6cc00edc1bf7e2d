"""What can become of a statement of a shard, and which statements there are.

Invariant: a trap springs once, for whichever shard comes first.
"""

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from wheelsched.ports import LeaseStore, PlanStore, RunStore, TimerStore

if TYPE_CHECKING:
    from tests.sim.simulation import Process

PORTS = {"leases": LeaseStore, "timers": TimerStore, "runs": RunStore, "plans": PlanStore}
SHOWN = ("tell", "read_breakers")  # what people see of a shard: nothing is decided by it
UNUSED = ("certify_death",)  # by shards: it is what a parent says of one
LOCAL = ("is_connected", "wait_disconnected")  # of the process itself: no statements
STATEMENTS = (
    *(
        f"{part}.{name}"
        for part, port in PORTS.items()
        for name in vars(port)
        if not name.startswith("_") and name not in (*SHOWN, *UNUSED, *LOCAL)
    ),
    "tenants.read",
)


class Fate(StrEnum):
    """What becomes of one statement."""

    FINE = "fine"
    UNDONE = "undone"  # not done, and an error
    AMBIGUOUS = "ambiguous"  # done, and an error
    LATE = "late"  # an error now, and done later
    CRASH_BEFORE = "crash before"  # the process dies, and it is not done
    CRASH_AFTER = "crash after"  # the process dies, and it is done


class Weather(Struct):
    """How likely each fate is at the moment, and how long a statement takes at most."""

    undone: float = 0.0
    ambiguous: float = 0.0
    late: float = 0.0
    slowest_ms: int = 20
    outcomes_ms: int = 0  # how long it takes until outcomes are written
    crash_in: int | None = None  # dies at this statement from now
    is_cut: bool = False
    is_deaf: bool = False


CRASHES = (Fate.CRASH_BEFORE, Fate.CRASH_AFTER)


class Trap(Struct, eq=False):
    """The fate of the next statement of a name, and of whoever sends it."""

    fate: Fate
    sprung: "asyncio.Future[Process]"
