"""The worker's log. It uses `logging`, so that the application's configuration applies.

Invariant: every record is readable as plain text (`event: detail`) and has the same data as fields
(`extra`): the event and the identity of the run.
"""

import logging
import traceback
from collections.abc import Mapping
from typing import Final

LOGGER: Final = logging.getLogger("wheelsched.worker")
# Without any configuration `logging` would print warnings itself.
_SILENT: Final = logging.NullHandler()
LOGGER.addHandler(_SILENT)


def speak_up() -> None:
    """Let `logging` print warnings and errors if the application has not configured it."""
    LOGGER.removeHandler(_SILENT)


def write(
    level: int,
    event: str,
    detail: str,
    fields: Mapping[str, object],
    *,
    raised: BaseException | None = None,
) -> None:
    """Log an event (`noun.verb`), with the traceback of `raised`, if given.

    An exception may contain lone surrogates, which cannot be written to a file.
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
