"""Decides which queued request is sent next, and how many are in flight. Start with `fair_queue`.

Invariant: this package does no I/O and reads no clock. Time is passed in, in microseconds.
"""
