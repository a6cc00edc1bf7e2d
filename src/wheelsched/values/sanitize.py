"""Makes a worker's response safe to store.

Invariant: an outcome can always be written, whatever the worker sent.
"""

from typing import Final

MAX_STATUS: Final = (1 << 15) - 1


def sanitize_text(text: str | None) -> str | None:
    """Replace what Postgres cannot store: NUL characters and lone surrogates."""
    if text is None:
        return None
    return text.replace("\0", "?").encode(errors="replace").decode()


def sanitize_status(status: int | None) -> int | None:
    """The status if it fits its column, otherwise None."""
    return status if status is None or 0 <= status <= MAX_STATUS else None
