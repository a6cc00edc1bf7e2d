"""What a store can keep of what strangers sent.

Invariant: an outcome is written, whatever a worker put into its answer.
"""

from typing import Final

MOST_STATUS: Final = (1 << 15) - 1


def storable_text(text: str | None) -> str | None:
    """The text without what no database keeps: NUL, and halves of surrogate pairs."""
    if text is None:
        return None
    return text.replace("\0", "?").encode(errors="replace").decode()


def storable_status(status: int | None) -> int | None:
    """The status, if it is one."""
    return status if status is None or 0 <= status <= MOST_STATUS else None
