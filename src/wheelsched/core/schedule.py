"""The front door of schedules: what a user wrote becomes a `Spec`, a `Spec` becomes due times.

Invariant: what `parse` accepts, `compile_schedule` compiles, and it is due at least once.
"""

from wheelsched.core.duration import MINUTE
from wheelsched.core.spec import DstGap, DstOverlap, Schedule, Spec

__all__ = ["Schedule", "Spec", "compile_schedule", "parse"]


def parse(
    schedule: object,
    *,
    timezone: str = "UTC",
    dst_gap: DstGap = "shift",
    dst_overlap: DstOverlap = "first",
    jitter: str = "0s",
    now_us: int,
    grace_us: int = MINUTE,
) -> Spec:
    """The spec of a schedule as a user wrote it, or the `ScheduleError` that says what is wrong."""
    raise NotImplementedError


def compile_schedule(spec: Spec, job_id: bytes | str, anchor_us: int) -> Schedule:
    """The due times of one job; `anchor_us` is where an `every` without `start` begins."""
    raise NotImplementedError
