"""Pages: lists that are read in parts.

Invariant: a page ends where the next one begins, whatever is added or removed in between; and the
last page says that it is the last.
"""

from collections.abc import Sequence
from typing import Annotated, Final, TypeVar

from msgspec import Meta, Struct

MAX_LIMIT: Final = 1_000

Item = TypeVar("Item")


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of a list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 100
    cursor: Annotated[str, Meta(description="`next_cursor` of the page before")] | None = None


def cut(found: Sequence[Item], limit: int) -> tuple[Sequence[Item], Item | None]:
    """A page of `limit` out of one item more, and its last item if there is more to come."""
    page = found[:limit]
    return page, (page[-1] if len(found) > limit else None)
