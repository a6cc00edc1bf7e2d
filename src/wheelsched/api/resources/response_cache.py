"""Cache of encoded job pages: lists are read far more often than jobs change.

Invariant: a cached page is used only for its tenant, only while the store confirms that all its
jobs have the same versions, and only until the first `next_run_at` in it. So the cache never
decides who sees what.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from wheelsched.api.http.pages import PageQuery
from wheelsched.core.model import Draft, Job
from wheelsched.jobs.describe import job_answer
from wheelsched.wire.instant import read_us
from wheelsched.wire.jobs import JobPage

MAX_BYTES: Final = 32 << 20  # of all pages
MAX_PAGE: Final = 1 << 20  # larger pages are not cached
_OVERHEAD: Final = 600  # bytes per entry in addition to its page


class RenderedPage(Struct, frozen=True, gc=False):
    """A `JobPage` as JSON, and its period of validity; without `until_us` it has no end."""

    body: Raw
    from_us: int
    until_us: int | None


class KeptPage(Struct, frozen=True, gc=False):
    """A page, and the fingerprint of its jobs."""

    fingerprint: bytes
    page: RenderedPage


def render(jobs: Sequence[Job | Draft], next_cursor: str | None, now_us: int) -> RenderedPage:
    """The page of these jobs. With a draft, whose response may change, it is not valid later."""
    answers = [job_answer(job, now_us) for job in jobs]
    coming = [answer.next_run_at for answer in answers if answer.next_run_at is not None]
    until_us = read_us(min(coming), pointer="/next_run_at") if coming else None
    if any(isinstance(job, Draft) for job in jobs):
        until_us = now_us
    page = JobPage(items=answers, next_cursor=next_cursor)
    return RenderedPage(Raw(msgspec.json.encode(page)), now_us, until_us)


class RenderedPages:
    """An LRU cache of encoded pages."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[UUID, PageQuery], KeptPage] = OrderedDict()

    def look_up(self, tenant_id: UUID, query: PageQuery, now_us: int) -> KeptPage | None:
        """The cached page, if it is still valid provided that no job has changed.

        The clock may have been set back, to before the page was made.
        """
        kept = self._kept.get((tenant_id, query))
        if kept is None or now_us < kept.page.from_us:
            return None
        if kept.page.until_us is not None and now_us >= kept.page.until_us:
            return None
        self._kept.move_to_end((tenant_id, query))
        return kept

    def keep(self, tenant_id: UUID, query: PageQuery, kept: KeptPage) -> None:
        """Caches a page in place of an earlier one, unless it is too large."""
        before = self._kept.pop((tenant_id, query), None)
        if before is not None:
            self._bytes -= _size(before)
        if _size(kept) > MAX_PAGE or kept.page.until_us == kept.page.from_us:
            return
        self._kept[tenant_id, query] = kept
        self._bytes += _size(kept)
        while self._bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= _size(oldest)


def _size(kept: KeptPage) -> int:
    return memoryview(kept.page.body).nbytes + _OVERHEAD
