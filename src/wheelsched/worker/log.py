"""The worker's log: the standard library's `logging`, so that the application's setup applies.

Invariant: a record reads well as plain text (`event: detail`) and carries the same as fields
(`extra`): `event` and whatever identifies the run.
"""

import logging
import traceback
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
    """Log an event (`noun.verb`); with the traceback of `raised`, if given.

    An exception may quote half a character, which no handler can write to a file.
    """
    if raised is not None:
        trace = "".join(traceback.format_exception(raised))
        if _writable(trace) != trace:
            detail, raised = f"{detail}\n{trace}", None
    LOGGER.log(
        level,
        "%s: %s",
        event,
        _writable(detail),
        exc_info=raised,
        extra={"event": event, **fields},
        stacklevel=2,
    )


def _writable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
