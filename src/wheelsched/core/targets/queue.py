"""Checks the name of a queue, and how long a run may wait in it.

Invariant: an accepted name needs no escaping in a URL, a header, a metric or a log line.
"""

import re
from typing import Final

from wheelsched.errors import FieldOutOfRange, InvalidName, quoted
from wheelsched.values.duration import DAY, SECOND, format_duration

QUEUE_POINTER: Final = "/target/queue"
CLAIM_WITHIN_POINTER: Final = "/target/claim_within"
MAX_QUEUE: Final = 100
MIN_CLAIM_WITHIN_US: Final = SECOND
MAX_CLAIM_WITHIN_US: Final = 30 * DAY
QUEUE_PATTERN: Final = f"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{MAX_QUEUE - 1}}}"

_QUEUE: Final = re.compile(QUEUE_PATTERN)


def check_queue(name: str, *, pointer: str = QUEUE_POINTER) -> str:
    """Return the name of a queue unchanged, or raise `InvalidName`."""
    if not _QUEUE.fullmatch(name):
        raise InvalidName(
            f"{quoted(name)} is not a valid name of a queue; expected 1 to {MAX_QUEUE} letters, "
            "digits and '.', '_', ':', '-', of which the first is a letter or a digit",
            pointer=pointer,
        )
    return name


def check_claim_within(duration_us: int) -> None:
    """Refuse a time in which no worker could take a run, or that is longer than retention."""
    if not MIN_CLAIM_WITHIN_US <= duration_us <= MAX_CLAIM_WITHIN_US:
        raise FieldOutOfRange(
            f"'{format_duration(duration_us)}' is out of range; expected '1s' to '30d'",
            pointer=CLAIM_WITHIN_POINTER,
        )
