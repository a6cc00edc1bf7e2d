"""The front door of schedules: what a user wrote becomes a `Spec`, a `Spec` becomes due times.

    spec = parse("0 9 * * 1-5", timezone="Europe/London", now_us=now_us)
    schedule = compile_schedule(spec, job_id, anchor_us=registered_us)
    due_us = schedule.next_after(now_us)

Invariant: what `parse` accepts, `compile_schedule` compiles, and it is due at least once.
"""

from wheelsched.core.compile import compile_schedule
from wheelsched.core.registration import first_due_us, parse
from wheelsched.core.spec import DstGap, DstOverlap, Kind, Schedule, Spec

__all__ = [
    "DstGap",
    "DstOverlap",
    "Kind",
    "Schedule",
    "Spec",
    "compile_schedule",
    "first_due_us",
    "parse",
]
