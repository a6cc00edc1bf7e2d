"""Jitter: a deterministic delay that spreads the runs of many jobs over a window.

Invariant: the delay depends only on the job and the due time. It is shorter than the configured
jitter and ends before the next due time.
"""

from hashlib import blake2b

from wheelsched.schedule.spec import Recurrence


class Jittered:
    """The `Schedule` of one job: its recurrence, and the delay of each due time."""

    __slots__ = ("_jitter_us", "_job_id", "_recurrence")

    def __init__(self, recurrence: Recurrence, job_id: bytes, jitter_us: int) -> None:
        self._recurrence = recurrence
        self._job_id = job_id
        self._jitter_us = jitter_us

    def next_after(self, after_us: int) -> int | None:
        """The next due time > `after_us`, or None."""
        return self._recurrence.next_after(after_us)

    def last_before(self, before_us: int) -> int | None:
        """The last due time < `before_us`, or None."""
        return self._recurrence.last_before(before_us)

    def count(self, after_us: int, until_us: int) -> int:
        """How many due times lie in (`after_us`, `until_us`]."""
        return self._recurrence.count(after_us, until_us)

    def jitter_us(self, due_us: int) -> int:
        """The delay of the run due at `due_us`."""
        if self._jitter_us == 0:
            return 0
        room_us = self._jitter_us
        next_us = self._recurrence.next_after(due_us)
        if next_us is not None:
            room_us = min(room_us, next_us - due_us)
        digest = blake2b(
            self._job_id + due_us.to_bytes(8), digest_size=8, person=b"wheelsched.jit"
        ).digest()
        return int.from_bytes(digest) * room_us >> 64
