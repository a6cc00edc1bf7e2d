"""Computes when a job is due: `parse` reads user input, `compile_schedule` gives the due times.

    spec = parse("0 9 * * 1-5", timezone="Europe/London", now_us=now_us)
    schedule = compile_schedule(spec, job_id, anchor_us=registered_us)
    due_us = first_due_us(spec, job_id, now_us=now_us)

Invariant: `compile_schedule` compiles every spec that `parse` accepts. If `first_due_us` accepts a
spec for a job, that job is due at least once.
"""
