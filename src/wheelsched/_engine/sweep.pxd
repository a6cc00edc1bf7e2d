"""Sweep: getting rid of stale entries, a little at a time.

Cancelling or moving a timer leaves its entry behind. When stale entries outnumber the
timers one and a half times, each operation that adds a stale entry also cleans a few
chunks, until every slot was visited once: entries stay below 3 × timers + 64 K, and no
single operation pays for it.

A chunk is cleaned by keeping its live entries in order and filling up the chunk before it;
the chain is whole after each step, so the sweep can be left and resumed inside a slot.
"""

from libc.stdint cimport uint32_t, uint64_t

from .levels cimport SLOTS, WORDS, Engine, is_live, lowest_bit, mark_empty
from .nodes cimport node_at
from .slots cimport CHUNK_ENTRIES, Chunk, Entry, Slot, chunk_at, pool_give, prefetch

cdef enum:
    SWEEP_CHUNKS = 4            # cleaned by each operation while a sweep is on
    STALE_ALWAYS_ALLOWED = 32768
    # A tag has 24 bits: it must not come around while an entry still carries the old one.
    STALE_NEVER_ALLOWED = 1 << 22


cdef inline uint64_t stale_limit(Engine* engine) noexcept nogil:
    cdef uint64_t limit = engine.timers + (engine.timers >> 1) + STALE_ALWAYS_ALLOWED
    return min(limit, <uint64_t>STALE_NEVER_ALLOWED)


cdef inline uint32_t occupied_slot_from(Engine* engine, uint32_t number) noexcept nogil:
    """The first slot that has entries and is not before `number`, or SLOTS."""
    cdef uint32_t word = number >> 6
    cdef uint64_t bits
    if number >= SLOTS:
        return SLOTS
    bits = engine.occupied[word] & (~<uint64_t>0 << (number & 63))
    while bits == 0:
        word += 1
        if word == WORDS:
            return SLOTS
        bits = engine.occupied[word]
    return (word << 6) + lowest_bit(bits)


cdef inline uint32_t keep_live(Engine* engine, Chunk* chunk, Entry* kept) noexcept nogil:
    """Copy the live entries of a chunk; how many."""
    cdef uint32_t count = 0
    cdef uint32_t i
    for i in range(chunk.start, chunk.end):
        prefetch(node_at(&engine.nodes, chunk.entries[i].index))
    for i in range(chunk.start, chunk.end):
        if is_live(node_at(&engine.nodes, chunk.entries[i].index), chunk.entries[i].mark):
            kept[count] = chunk.entries[i]
            count += 1
    return count


cdef inline void unlink_chunk(
    Engine* engine, Slot* slot, Chunk* before, uint32_t number
) noexcept nogil:
    cdef uint32_t following = chunk_at(&engine.pool, number).next
    if before == NULL:
        slot.head = following
    else:
        before.next = following
    if slot.tail == number:
        slot.tail = engine.sweep_chunk
    pool_give(&engine.pool, number)


cdef inline void clean_chunk(Engine* engine, Slot* slot, uint32_t number) noexcept nogil:
    """Drop the stale entries of the chunk after `sweep_chunk`, and close up to that one."""
    cdef Entry kept[CHUNK_ENTRIES]
    cdef Chunk* chunk = chunk_at(&engine.pool, number)
    cdef Chunk* before = NULL
    cdef uint32_t taken = 0
    cdef uint32_t dropped = chunk.end - chunk.start
    cdef uint32_t count = keep_live(engine, chunk, kept)
    dropped -= count
    engine.stale -= dropped
    engine.swept += dropped
    slot.count -= dropped
    if engine.sweep_chunk != 0:
        before = chunk_at(&engine.pool, engine.sweep_chunk)
        while taken < count and before.end < CHUNK_ENTRIES:
            before.entries[before.end] = kept[taken]
            before.end += 1
            taken += 1
    if taken == count:
        unlink_chunk(engine, slot, before, number)
        return
    chunk.start = 0
    chunk.end = 0
    while taken < count:
        chunk.entries[chunk.end] = kept[taken]
        chunk.end += 1
        taken += 1
    engine.sweep_chunk = number


cdef inline void sweep_some(Engine* engine) noexcept nogil:
    cdef uint32_t number, chunk
    cdef Slot* slot
    cdef int _
    for _ in range(SWEEP_CHUNKS):
        number = occupied_slot_from(engine, engine.sweep_slot)
        if number == SLOTS:
            engine.sweeping = False
            return
        if number != engine.sweep_slot:
            engine.sweep_slot = number
            engine.sweep_chunk = 0
        slot = &engine.slots[number]
        chunk = slot.head
        if engine.sweep_chunk != 0:
            chunk = chunk_at(&engine.pool, engine.sweep_chunk).next
        if chunk != 0:
            clean_chunk(engine, slot, chunk)
        if slot.count == 0:
            mark_empty(engine, number)
        if chunk == 0 or slot.count == 0:
            engine.sweep_slot = number + 1
            engine.sweep_chunk = 0


cdef inline void entry_went_stale(Engine* engine) noexcept nogil:
    engine.stale += 1
    if not engine.sweeping:
        if engine.stale <= stale_limit(engine):
            return
        engine.sweeping = True
        engine.sweep_slot = 0
        engine.sweep_chunk = 0
    sweep_some(engine)
