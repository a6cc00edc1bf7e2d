"""The worker's log: the standard library's `logging`, so that the application's setup applies.

Invariant: a record reads well as plain text (`event: detail`) and carries the same as fields
(`extra`): `event` and whatever identifies the run.
"""

import logging
from collections.abc import Mapping
from typing import Final

LOGGER: Final = logging.getLogger("wheelsched.worker")
# Without any configuration `logging` would print warnings itself.
LOGGER.addHandler(logging.NullHandler())


def write(
    level: int,
    event: str,
    detail: str,
    fields: Mapping[str, object],
    *,
    raised: BaseException | None = None,
) -> None:
    """Log an event (`noun.verb`); with the traceback of `raised`, if given."""
    LOGGER.log(
        level,
        "%s: %s",
        event,
        detail,
        exc_info=raised,
        extra={"event": event, **fields},
        stacklevel=2,
    )
