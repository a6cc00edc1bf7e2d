"""The wheel's engine, in C structs and without Python objects; `_wheel.pyx` compiles it in.

slots    first-in-first-out chains of entries
nodes    the timers themselves, found by index
levels   which slot a deadline belongs to
sweep    getting rid of stale entries, a little at a time
order    the exact one inside a tick
advance  moving time forward
expiry   when to come back
timers   adding, cancelling and moving them one by one
index    finding a timer by its key
check    every invariant, verified
"""
