"""The front door of schedules: what a user wrote becomes a `Spec`, a `Spec` becomes due times.

    spec = parse("0 9 * * 1-5", timezone="Europe/London", now_us=now_us)
    schedule = compile_schedule(spec, job_id, anchor_us=registered_us)
    due_us = first_due_us(spec, job_id, now_us=now_us)

Invariant: what `parse` accepts, `compile_schedule` compiles; what `first_due_us` then accepts for
a job, is due at least once for that job.
"""

from wheelsched.core.compile import compile_schedule
from wheelsched.core.registration import first_due_us, one_off_like, parse
from wheelsched.core.spec import DstGap, DstOverlap, Kind, Schedule, Spec

__all__ = [
    "DstGap",
    "DstOverlap",
    "Kind",
    "Schedule",
    "Spec",
    "compile_schedule",
    "first_due_us",
    "one_off_like",
    "parse",
]
