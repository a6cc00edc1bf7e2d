"""Paging of lists.

Invariant: each page continues exactly where the previous one ended, whatever is added or removed in
between; the last page has no `next_cursor`.
"""

from collections.abc import Sequence
from typing import Annotated, Final, TypeVar

from msgspec import Meta, Struct

MAX_LIMIT: Final = 1_000

Item = TypeVar("Item")


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 100
    cursor: Annotated[str, Meta(description="`next_cursor` of the previous page.")] | None = None


def split_page(found: Sequence[Item], limit: int) -> tuple[Sequence[Item], Item | None]:
    """A page of `limit` items from up to one item more, and its last item if more follow."""
    page = found[:limit]
    return page, (page[-1] if len(found) > limit else None)
