"""Answers about jobs, encoded and kept: lists are read far more often than jobs change.

Invariant: an answer is given only for the version that the store has just shown to the caller, and
only while its `next_run_at` is still to come. So the cache decides nothing about who sees what.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Raw, Struct

from wheelsched.api.answers import job_answer
from wheelsched.core.model import Draft, Job
from wheelsched.ports import JobPosition, JobVersion, position_of
from wheelsched.wire.instant import read_us

MAX_BYTES: Final = 32 << 20  # of all answers
MAX_ANSWER: Final = 8 << 10  # larger ones are encoded each time
_OVERHEAD: Final = 300  # bytes of an entry beside its answer


class RenderedJob(Struct, frozen=True, gc=False):
    """A `JobAnswer` as JSON, and the position that a cursor needs."""

    position: JobPosition
    answer: Raw


class _Entry(Struct, frozen=True, gc=False):
    job: RenderedJob
    from_us: int  # when `next_run_at` was worked out
    until_us: int | None  # `next_run_at` itself; None: there is none to come


class RenderedJobs:
    """The answers of one process, the least recently used of which make room."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[JobVersion, _Entry] = OrderedDict()

    def at(self, now_us: int) -> Callable[[JobVersion], RenderedJob | None]:
        """How to look up an answer that holds at a time."""

        def look_up(version: JobVersion) -> RenderedJob | None:
            entry = self._entries.get(version)
            if entry is None or now_us < entry.from_us:
                return None
            if entry.until_us is not None and now_us >= entry.until_us:
                return None
            self._entries.move_to_end(version)
            return entry.job

        return look_up

    def render(self, job: Job | Draft, now_us: int) -> RenderedJob:
        """The answer about a job, which is kept unless it is a draft or large."""
        answer = job_answer(job, now_us)
        rendered = RenderedJob(position_of(job), Raw(msgspec.json.encode(answer)))
        if isinstance(job, Job) and _size(rendered) <= MAX_ANSWER:
            coming = answer.next_run_at
            until_us = None if coming is None else read_us(coming, pointer="/next_run_at")
            version = JobVersion(job.job_id, job.version, job.updated_at_us)
            self._keep(version, _Entry(rendered, now_us, until_us))
        return rendered

    def _keep(self, version: JobVersion, entry: _Entry) -> None:
        before = self._entries.pop(version, None)
        if before is not None:
            self._bytes -= _size(before.job)
        self._entries[version] = entry
        self._bytes += _size(entry.job)
        while self._bytes > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= _size(oldest.job)


def _size(rendered: RenderedJob) -> int:
    return memoryview(rendered.answer).nbytes + _OVERHEAD
