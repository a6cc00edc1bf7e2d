"""The phase of an armed run: where it is between its claim and its outcome.

```
ARMED ──► WAITING ──► ADMITTED ──► SENT ──► SETTLING
  └──► HELD              └──► SUSPENDED
```

Invariant: a run is in one phase, and moves only as `NEXT` says. It ends as `SETTLING` or as
`WITHDRAWN`: another attempt of the run is another `ArmedRun`. A run that a worker gives back
unbegun is `ADMITTED` again. A run whose outcome cannot be written is `SENT` again.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class Phase(IntEnum):
    """An integer, because half a million runs change phase in one second."""

    ARMED = 0  # claimed; waits in the timetable for its time
    HELD = 1  # due; waits to be revalidated
    WAITING = 2  # due; waits for earlier runs of its job
    ADMITTED = 3  # live; waits in the fair queue
    SUSPENDED = 4  # live; waits to be revalidated
    SENT = 5  # live; its request went to the socket, or it was handed to a worker
    SETTLING = 6  # its outcome, or a ruling, waits to be written
    WITHDRAWN = 7  # will not be sent, or its response is ignored


IN_DOUBT: Final = frozenset({Phase.HELD, Phase.SUSPENDED})
UNSENT: Final = IN_DOUBT | {Phase.ARMED, Phase.WAITING, Phase.ADMITTED}  # and without an end

NEXT: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.ARMED: frozenset(
        {Phase.HELD, Phase.WAITING, Phase.ADMITTED, Phase.SETTLING, Phase.WITHDRAWN}
    ),
    Phase.HELD: frozenset(
        {Phase.ARMED, Phase.WAITING, Phase.ADMITTED, Phase.SETTLING, Phase.WITHDRAWN}
    ),
    Phase.WAITING: frozenset(
        {Phase.ARMED, Phase.HELD, Phase.ADMITTED, Phase.SETTLING, Phase.WITHDRAWN}
    ),
    Phase.ADMITTED: frozenset(
        {Phase.ARMED, Phase.SUSPENDED, Phase.SENT, Phase.SETTLING, Phase.WITHDRAWN}
    ),
    Phase.SUSPENDED: frozenset({Phase.ARMED, Phase.ADMITTED, Phase.WITHDRAWN}),
    Phase.SENT: frozenset({Phase.ADMITTED, Phase.SETTLING, Phase.WITHDRAWN}),
    Phase.SETTLING: frozenset({Phase.SENT, Phase.WITHDRAWN}),
    Phase.WITHDRAWN: frozenset(),
}
