"""Expiry: when to call advance next.

Never later than the tick of the earliest timer. Exactly that tick, as long as the slot in
question is small enough to look through; a crowded one is announced early, so that whoever
sleeps until then wakes up in time to split it in small steps.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from .advance cimport release_head
from .levels cimport (
    BLOCK_SHIFT, COARSE_SPANS, FINE, FINE_SLOTS, LATE, SPAN_TICKS_SHIFT, Engine,
    block_now, coarse_block_after, coarse_slot, far_slot, far_span_from, fine_tick_from,
    is_live, mark_empty, tick_of,
)
from .nodes cimport Node, node_at
from .slots cimport Chunk, Slot, chunk_at

cdef enum:
    SCAN_MOST = 1024        # entries looked through for an exact answer
    CROWDED = 4096          # entries that are worth waking up early for


cdef inline void drop_slot(Engine* engine, uint32_t number) noexcept nogil:
    """Give back a slot in which every entry is stale."""
    cdef Slot* slot = &engine.slots[number]
    engine.stale -= slot.count
    engine.swept += slot.count
    while slot.head != 0:
        release_head(engine, number)
    slot.count = 0
    mark_empty(engine, number)


cdef inline int64_t earliest_in(Engine* engine, uint32_t number, int64_t enough_ns) noexcept nogil:
    """The earliest deadline in a slot, INT64_MAX without timers; one by `enough_ns` will do."""
    cdef Slot* slot = &engine.slots[number]
    cdef int64_t earliest_ns = INT64_MAX
    cdef uint32_t chunk_number = slot.head
    cdef Chunk* chunk
    cdef Node* node
    cdef uint32_t i
    while chunk_number != 0:
        chunk = chunk_at(&engine.pool, chunk_number)
        for i in range(chunk.start, chunk.end):
            node = node_at(&engine.nodes, chunk.entries[i].index)
            if is_live(node, chunk.entries[i].mark):
                earliest_ns = min(earliest_ns, node.deadline_ns)
                if earliest_ns <= enough_ns:
                    return earliest_ns
        chunk_number = chunk.next
    if earliest_ns == INT64_MAX and slot.count != 0:
        drop_slot(engine, number)
    return earliest_ns


cdef inline int64_t earliest_fine(
    Engine* engine, int64_t tick, int64_t earliest_ns
) noexcept nogil:
    """The earliest deadline in the fine slots from a tick to the end of its block."""
    cdef int64_t end = ((tick >> BLOCK_SHIFT) + 1) << BLOCK_SHIFT
    cdef int64_t due_ns
    while tick < end:
        tick = fine_tick_from(engine, tick)
        due_ns = tick << engine.tick_shift
        if tick < 0 or due_ns >= earliest_ns:
            break
        earliest_ns = min(
            earliest_ns, earliest_in(engine, FINE + <uint32_t>(tick & (FINE_SLOTS - 1)), due_ns)
        )
        tick += 1
    return earliest_ns


cdef inline int64_t earliest_crowd(
    Engine* engine, uint32_t number, int64_t first_tick, int64_t early_tick, int64_t earliest_ns
) noexcept nogil:
    """The time to look at a coarse or far slot again, if that is before `earliest_ns`.

    `first_tick` is the first that the slot can hold, `early_tick` the time to start
    splitting it when it is crowded.
    """
    cdef uint32_t count = engine.slots[number].count
    cdef int64_t first_ns = first_tick << engine.tick_shift
    if count > CROWDED:
        return min(earliest_ns, max(engine.tick, early_tick) << engine.tick_shift)
    if count == 0 or first_ns >= earliest_ns:
        return earliest_ns
    if count > SCAN_MOST:
        return first_ns
    return min(earliest_ns, earliest_in(engine, number, first_ns))


cdef inline int64_t earliest_coarse(
    Engine* engine, int64_t block, int64_t earliest_ns
) noexcept nogil:
    cdef int64_t early_tick
    while block >= 0:
        early_tick = (block - 1) << BLOCK_SHIFT
        if early_tick << engine.tick_shift >= earliest_ns:
            break
        earliest_ns = earliest_crowd(
            engine, coarse_slot(block), block << BLOCK_SHIFT, early_tick, earliest_ns
        )
        block = coarse_block_after(engine, block)
    return earliest_ns


cdef inline int64_t earliest_far(Engine* engine, int64_t earliest_ns) noexcept nogil:
    cdef int64_t span = far_span_from(engine, 0)
    cdef int64_t early_tick
    while span >= 0:
        early_tick = (span - COARSE_SPANS + 1) << SPAN_TICKS_SHIFT
        if early_tick << engine.tick_shift >= earliest_ns:
            break
        earliest_ns = earliest_crowd(
            engine, far_slot(span), span << SPAN_TICKS_SHIFT, early_tick, earliest_ns
        )
        span = far_span_from(engine, span + 1)
    return earliest_ns


cdef inline int64_t next_expiry_ns(Engine* engine) noexcept nogil:
    """The time to advance to next, -1 without timers."""
    cdef int64_t earliest_ns
    cdef int64_t block = block_now(engine)
    if engine.timers == 0:
        return -1
    if engine.tick <= engine.now_ns >> engine.tick_shift:   # a limit left ticks behind
        return engine.now_ns
    earliest_ns = earliest_in(engine, LATE, engine.now_ns)
    if earliest_ns <= engine.now_ns:
        return engine.now_ns
    earliest_ns = earliest_fine(engine, engine.tick, earliest_ns)
    earliest_ns = earliest_fine(engine, (block + 1) << BLOCK_SHIFT, earliest_ns)
    earliest_ns = earliest_coarse(engine, block, earliest_ns)
    earliest_ns = earliest_far(engine, earliest_ns)
    return tick_of(engine, earliest_ns) << engine.tick_shift
