"""Expiry: when to call advance next.

Never later than the tick of the earliest timer. Exactly that tick, as long as few entries have
to be looked through for it; beyond that, the beginning of the slot in question. A crowded slot
is announced early, so that whoever sleeps until then wakes up in time to split it in small steps.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from .levels cimport (
    BLOCK_SHIFT, COARSE_SPANS, FINE, FINE_SLOTS, LATE, SPAN_TICKS_SHIFT, Engine, block_now,
    coarse_block_after, coarse_slot, far_slot, far_span_from, fine_tick_from, tick_of,
)
from .sweep cimport earliest_in

cdef enum:
    LOOK_MOST = 1024        # entries looked through for one answer
    CROWDED = 4096          # entries that are worth waking up early for

cdef struct Search:
    int64_t earliest_ns     # so far
    uint32_t left           # entries that may still be looked through


cdef inline void look_in(
    Engine* engine, Search* search, uint32_t number, int64_t first_ns
) noexcept nogil:
    """Look through a slot that holds nothing before `first_ns`, or make do with that."""
    cdef uint32_t count = engine.slots[number].count
    if count == 0 or first_ns >= search.earliest_ns:
        return
    if count > search.left:
        search.earliest_ns = first_ns
        return
    search.left -= count
    search.earliest_ns = min(search.earliest_ns, earliest_in(engine, number, first_ns))


cdef inline void look_at_fine(Engine* engine, Search* search, int64_t tick) noexcept nogil:
    """From a tick to the end of its block."""
    cdef int64_t end = ((tick >> BLOCK_SHIFT) + 1) << BLOCK_SHIFT
    while tick < end:
        tick = fine_tick_from(engine, tick)
        if tick < 0 or tick << engine.tick_shift >= search.earliest_ns:
            return
        look_in(
            engine, search, FINE + <uint32_t>(tick & (FINE_SLOTS - 1)), tick << engine.tick_shift
        )
        tick += 1


cdef inline bint look_at_crowd(
    Engine* engine, Search* search, uint32_t number, int64_t first_tick, int64_t early_tick
) noexcept nogil:
    """A coarse or far slot; False when it and all later ones are too late to matter.

    `early_tick` is the time to start splitting it when it is crowded.
    """
    cdef int64_t early_ns = max(engine.tick, early_tick) << engine.tick_shift
    if early_ns >= search.earliest_ns:
        return False
    if engine.slots[number].count > CROWDED:
        search.earliest_ns = early_ns
    else:
        look_in(engine, search, number, first_tick << engine.tick_shift)
    return True


cdef inline void look_at_coarse(Engine* engine, Search* search) noexcept nogil:
    cdef int64_t block = coarse_block_after(engine, block_now(engine) - 1)
    while block >= 0 and look_at_crowd(
        engine, search, coarse_slot(block), block << BLOCK_SHIFT, (block - 1) << BLOCK_SHIFT
    ):
        block = coarse_block_after(engine, block)


cdef inline void look_at_far(Engine* engine, Search* search) noexcept nogil:
    cdef int64_t span = far_span_from(engine, 0)
    while span >= 0 and look_at_crowd(
        engine, search, far_slot(span), span << SPAN_TICKS_SHIFT,
        (span - COARSE_SPANS + 1) << SPAN_TICKS_SHIFT,
    ):
        span = far_span_from(engine, span + 1)


cdef inline int64_t next_expiry_ns(Engine* engine) noexcept nogil:
    """The time to advance to next, -1 without timers."""
    cdef Search search
    if engine.timers == 0:
        return -1
    if engine.tick <= engine.now_ns >> engine.tick_shift:   # a limit left ticks behind
        return engine.now_ns
    search.earliest_ns = INT64_MAX
    search.left = LOOK_MOST
    look_in(engine, &search, LATE, engine.now_ns)
    if search.earliest_ns <= engine.now_ns:
        return engine.now_ns
    look_at_fine(engine, &search, engine.tick)
    look_at_fine(engine, &search, (block_now(engine) + 1) << BLOCK_SHIFT)
    look_at_coarse(engine, &search)
    look_at_far(engine, &search)
    return tick_of(engine, search.earliest_ns) << engine.tick_shift
