"""Levels: which slot a deadline belongs to.

A deadline is rounded up to its tick. 256 ticks are a block, 1,024 blocks a span:

    late     1 slot            deadlines that had passed when they were placed
    fine     2 × 256 slots     the ticks of the current block and of the next
    coarse   4,096 slots       the blocks after those, up to `coarse_end`
    far      64 slots          the spans from `coarse_end` on; the last one also parks
                               whatever lies beyond it, to be placed again when reached

With ticks of 2^20 ns a block is 268 ms and a span 4.6 minutes: `coarse_end` is 13.7 to 18.3
minutes away, the end of the far level 4.9 hours.

Time only ever pulls entries down: far to coarse to fine. A slot that is being emptied into
the level below still takes what is new for it, so that entries of one tick stay in the order
in which they came. (Not so what was parked: it is placed again after others were placed.)

A span is pulled in portions. Until that is finished `coarse_end` stays at its beginning, while
a part of its entries is in coarse slots already, beyond `coarse_end` and within `coarse_reach`.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from .nodes cimport Node, Nodes
from .slots cimport CHUNK_ENTRIES, Chunk, Pool, Slot, chunk_at, prefetch, slot_append

cdef enum:
    BLOCK_SHIFT = 8
    BLOCK_TICKS = 1 << BLOCK_SHIFT
    SPAN_SHIFT = 10
    SPAN_BLOCKS = 1 << SPAN_SHIFT
    SPAN_TICKS_SHIFT = BLOCK_SHIFT + SPAN_SHIFT
    COARSE_SPANS = 4

    FINE_SLOTS = 2 * BLOCK_TICKS
    COARSE_SLOTS = COARSE_SPANS * SPAN_BLOCKS
    FAR_SLOTS = 64

    FINE = 0
    COARSE = FINE + FINE_SLOTS
    FAR = COARSE + COARSE_SLOTS
    LATE = FAR + FAR_SLOTS
    SLOTS = LATE + 1

    COARSE_WORD = COARSE // 64
    FAR_WORD = FAR // 64
    WORDS = LATE // 64 + 1

    TAG_MASK = 0xFFFFFF
    TICK_MASK = 0xFF

cdef extern from *:
    int lowest_bit "__builtin_ctzll" (unsigned long long word) noexcept nogil

cdef struct Engine:
    int64_t now_ns
    int64_t tick            # every tick before this one is drained
    int64_t coarse_end      # the first block that the coarse level does not hold
    int tick_shift
    bint exact_order
    int64_t ordered_tick    # the tick whose slot was last put in exact order
    bint late_is_ordered

    Nodes nodes
    Pool pool
    Slot slots[SLOTS]
    uint64_t occupied[WORDS]    # a bit for each slot that has entries
    uint64_t coarse_words       # a bit for each word of `occupied` in the coarse level

    uint64_t timers             # each has exactly one live entry
    uint64_t stale              # entries whose timer moved or is gone
    uint64_t fired
    uint64_t cancelled
    uint64_t replaced           # entries written again, by cascades and moved deadlines
    uint64_t swept

    bint sweeping
    uint32_t sweep_slot
    uint32_t sweep_chunk        # the last chunk of that slot that is clean already, or 0
    uint32_t sweep_last         # the chunk at which that slot is done, 0 before arriving there

    uint32_t* expired           # node indices, collected by the advance in progress
    size_t expired_count
    size_t expired_capacity


cdef inline int64_t tick_of(Engine* engine, int64_t deadline_ns) noexcept nogil:
    return (deadline_ns + (<int64_t>1 << engine.tick_shift) - 1) >> engine.tick_shift


cdef inline int64_t block_now(Engine* engine) noexcept nogil:
    return engine.tick >> BLOCK_SHIFT


cdef inline int64_t coarse_reach(Engine* engine) noexcept nogil:
    """How far the coarse level can extend from the current block without overlapping itself."""
    return ((block_now(engine) >> SPAN_SHIFT) + COARSE_SPANS) << SPAN_SHIFT


cdef inline uint32_t coarse_slot(int64_t block) noexcept nogil:
    return COARSE + <uint32_t>(block & (COARSE_SLOTS - 1))


cdef inline uint32_t far_slot(int64_t span) noexcept nogil:
    return FAR + <uint32_t>(span & (FAR_SLOTS - 1))


cdef inline void mark_occupied(Engine* engine, uint32_t number) noexcept nogil:
    cdef uint32_t word = number >> 6
    engine.occupied[word] |= <uint64_t>1 << (number & 63)
    if COARSE_WORD <= word < FAR_WORD:
        engine.coarse_words |= <uint64_t>1 << (word - COARSE_WORD)


cdef inline void mark_empty(Engine* engine, uint32_t number) noexcept nogil:
    cdef uint32_t word = number >> 6
    engine.occupied[word] &= ~(<uint64_t>1 << (number & 63))
    if engine.occupied[word] == 0 and COARSE_WORD <= word < FAR_WORD:
        engine.coarse_words &= ~(<uint64_t>1 << (word - COARSE_WORD))


cdef inline int put_entry(
    Engine* engine, uint32_t number, uint32_t index, uint32_t mark
) noexcept nogil:
    cdef Slot* slot = &engine.slots[number]
    if slot_append(&engine.pool, slot, index, mark) < 0:
        return -1
    if slot.count == 1:
        mark_occupied(engine, number)
    return 0


cdef inline size_t chunks_for(size_t entries) noexcept nogil:
    """Enough chunks to write that many entries, whichever slots they belong to."""
    return entries // CHUNK_ENTRIES + min(entries, <size_t>SLOTS)


cdef inline uint32_t slot_for(
    Engine* engine, int64_t deadline_ns, int64_t coarse_end
) noexcept nogil:
    """The slot of a deadline that is not late, if the coarse level ended at `coarse_end`."""
    cdef int64_t tick = tick_of(engine, deadline_ns)
    cdef int64_t block = tick >> BLOCK_SHIFT
    cdef int64_t last_span
    if block >= coarse_end:
        last_span = (engine.coarse_end >> SPAN_SHIFT) + FAR_SLOTS - 1
        return far_slot(min(block >> SPAN_SHIFT, last_span))
    if block > block_now(engine) + 1 or engine.slots[coarse_slot(block)].count != 0:
        return coarse_slot(block)
    return FINE + <uint32_t>(tick & (FINE_SLOTS - 1))


cdef inline uint32_t mark_of(Engine* engine, uint32_t tag, int64_t deadline_ns) noexcept nogil:
    return (tag & TAG_MASK) << BLOCK_SHIFT | <uint32_t>(tick_of(engine, deadline_ns) & TICK_MASK)


cdef inline int place(
    Engine* engine, uint32_t index, uint32_t tag, int64_t deadline_ns
) noexcept nogil:
    """Write the entry of a new or moved timer; -1, and nothing changed, without memory."""
    cdef uint32_t number = LATE
    if deadline_ns > engine.now_ns:
        number = slot_for(engine, deadline_ns, engine.coarse_end)
    else:
        engine.late_is_ordered = False
    return put_entry(engine, number, index, mark_of(engine, tag, deadline_ns))


cdef inline void prefetch_tail(Engine* engine, int64_t deadline_ns) noexcept nogil:
    """Have the chunk fetched that the entry for this deadline will be written to."""
    cdef Chunk* chunk
    cdef uint32_t number
    if deadline_ns > engine.now_ns:
        number = engine.slots[slot_for(engine, deadline_ns, engine.coarse_end)].tail
        if number != 0:
            chunk = chunk_at(&engine.pool, number)
            prefetch(chunk)
            prefetch(&chunk.entries[CHUNK_ENTRIES // 2])


cdef inline bint is_live(Node* node, uint32_t mark) noexcept nogil:
    return (node.tag & TAG_MASK) == mark >> BLOCK_SHIFT


cdef inline int64_t fine_tick_from(Engine* engine, int64_t tick) noexcept nogil:
    """The first occupied tick of a block that is not before `tick`, or -1.

    The block is that of `tick`, and must be the current one or the next.
    """
    cdef uint32_t position = <uint32_t>(tick & (BLOCK_TICKS - 1))
    cdef uint32_t word = <uint32_t>(tick & (FINE_SLOTS - 1)) >> 6
    cdef uint32_t end = (word | (BLOCK_TICKS // 64 - 1)) + 1
    cdef uint64_t bits = engine.occupied[word] & (~<uint64_t>0 << (position & 63))
    tick -= position & 63
    while bits == 0:
        word += 1
        tick += 64
        if word == end:
            return -1
        bits = engine.occupied[word]
    return tick + lowest_bit(bits)


cdef inline int64_t coarse_block_after(Engine* engine, int64_t block) noexcept nogil:
    """The first occupied block after `block`, which must not be before the current one; or -1."""
    cdef uint32_t start = <uint32_t>((block + 1) & (COARSE_SLOTS - 1))
    cdef uint32_t word = start >> 6
    cdef uint32_t turn
    cdef uint64_t bits = engine.occupied[COARSE_WORD + word] & (~<uint64_t>0 << (start & 63))
    cdef uint64_t words
    if bits == 0:
        turn = (word + 1) & 63
        words = engine.coarse_words >> turn | engine.coarse_words << (-turn & 63)
        if words == 0:
            return -1
        word = (turn + lowest_bit(words)) & 63
        bits = engine.occupied[COARSE_WORD + word]
    block += 1 + (((word << 6) + lowest_bit(bits) - start) & (COARSE_SLOTS - 1))
    # Beyond `coarse_end` lie the blocks of a span that is being pulled in.
    return block if block < coarse_reach(engine) else -1


cdef inline int64_t far_span_from(Engine* engine, int64_t span) noexcept nogil:
    """The first occupied span that is not before `span`, or -1."""
    cdef int64_t first = engine.coarse_end >> SPAN_SHIFT
    cdef uint32_t turn = <uint32_t>(first & (FAR_SLOTS - 1))
    cdef uint64_t bits = engine.occupied[FAR_WORD]
    bits = bits >> turn | bits << (-turn & 63)
    if span > first:
        if span - first >= FAR_SLOTS:
            return -1
        bits &= ~<uint64_t>0 << (span - first)
    return first + lowest_bit(bits) if bits != 0 else -1
