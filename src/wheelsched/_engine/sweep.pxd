"""Sweep: getting rid of stale entries, a little at a time.

Cancelling or moving a timer leaves its entry behind. When stale entries outnumber the
timers one and a half times, each operation that adds a stale entry also cleans a few
chunks, until every slot was visited once: entries stay below 3 × timers + 64 K, and no
single operation pays for it.

A chunk is cleaned by keeping its live entries in order and filling up the chunk before it;
the chain is whole after each step, so the sweep can be left and resumed inside a slot. A slot
is done at the chunk that was its last when the sweep arrived, however fast it grows.

Why 24 bits of tag are enough: a tag counts the stale entries of one timer, so it comes round
when 2**24 entries went stale while the first was still there. But a sweep begins at 2**21 stale
entries at the latest and visits four chunks for each further one. An entry slips past it at
most once, when its block is split, and is met by the next. Two sweeps over the entries of 2**29
timers, and what goes stale before each, make fewer than 2**24.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from .levels cimport SLOTS, WORDS, Engine, is_live, lowest_bit, mark_empty
from .nodes cimport Node, node_at
from .slots cimport (
    CHUNK_ENTRIES, Chunk, Entry, Slot, chunk_at, pool_give, prefetch, slot_pop_chunk,
)

cdef enum:
    SWEEP_CHUNKS = 4            # cleaned by each operation while a sweep is on
    STALE_ALWAYS_ALLOWED = 1 << 15
    STALE_NEVER_ALLOWED = 1 << 21


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


cdef inline void leave_slot(Engine* engine) noexcept nogil:
    """The sweep is done with its slot."""
    engine.sweep_slot += 1
    engine.sweep_chunk = 0
    engine.sweep_last = 0


cdef inline void sweep_some(Engine* engine) noexcept nogil:
    cdef uint32_t number, chunk
    cdef bint is_last
    cdef Slot* slot
    cdef int _
    for _ in range(SWEEP_CHUNKS):
        number = occupied_slot_from(engine, engine.sweep_slot)
        if number == SLOTS:
            engine.sweeping = False
            return
        slot = &engine.slots[number]
        if number != engine.sweep_slot or engine.sweep_last == 0:
            engine.sweep_slot = number
            engine.sweep_chunk = 0
            engine.sweep_last = slot.tail
        chunk = slot.head
        if engine.sweep_chunk != 0:
            chunk = chunk_at(&engine.pool, engine.sweep_chunk).next
        is_last = chunk == engine.sweep_last or chunk == 0
        if chunk != 0:
            clean_chunk(engine, slot, chunk)
        if slot.count == 0:
            mark_empty(engine, number)
        if is_last or slot.count == 0:
            leave_slot(engine)


cdef inline void begin_sweep(Engine* engine) noexcept nogil:
    """Begin when there are too many stale entries, unless a sweep is on."""
    if not engine.sweeping and engine.stale > stale_limit(engine):
        engine.sweeping = True
        engine.sweep_slot = 0
        engine.sweep_chunk = 0
        engine.sweep_last = 0


cdef inline void entry_went_stale(Engine* engine) noexcept nogil:
    engine.stale += 1
    begin_sweep(engine)
    if engine.sweeping:
        sweep_some(engine)


cdef inline void timers_went(Engine* engine, size_t count) noexcept nogil:
    """With fewer timers, fewer stale entries are allowed."""
    cdef size_t _
    begin_sweep(engine)
    for _ in range(count // CHUNK_ENTRIES + 1):
        if engine.sweeping:
            sweep_some(engine)


# What happens to a slot that may be the one being swept.

cdef inline void release_head(Engine* engine, uint32_t number) noexcept nogil:
    """Give back the first chunk of a slot. What the sweep cleaned of it stays clean."""
    cdef uint32_t head = engine.slots[number].head
    if engine.sweep_slot == number:
        if head == engine.sweep_last:
            leave_slot(engine)
        elif head == engine.sweep_chunk:
            engine.sweep_chunk = 0
    slot_pop_chunk(&engine.pool, &engine.slots[number])


cdef inline void forget_slot(Engine* engine, uint32_t number) noexcept nogil:
    """Make a slot empty; its chunks are the caller's."""
    if engine.sweep_slot == number:
        leave_slot(engine)
    engine.slots[number].head = 0
    engine.slots[number].tail = 0
    engine.slots[number].count = 0
    mark_empty(engine, number)


cdef inline void drop_slot(Engine* engine, uint32_t number) noexcept nogil:
    """Give back a slot in which every entry is stale."""
    cdef Slot slot = engine.slots[number]
    engine.stale -= slot.count
    engine.swept += slot.count
    forget_slot(engine, number)
    while slot.head != 0:
        slot_pop_chunk(&engine.pool, &slot)


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
