"""Slots: first-in-first-out chains of 256-byte chunks, drawn from one pool.

An entry names a timer and carries a mark, the timer's tag at the time of writing: the
entry is live as long as the two agree, so that nobody has to find an entry to void it.
A chunk is read from `start` and written at `end`; chunk 0 means "no chunk".
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport uint16_t, uint32_t

cdef enum:
    CHUNK_ENTRIES = 31
    POOL_SHIFT = 10
    POOL_BLOCK = 1 << POOL_SHIFT
    POOL_MASK = POOL_BLOCK - 1

cdef extern from *:
    void prefetch "__builtin_prefetch" (const void* address) noexcept nogil

cdef struct Entry:
    uint32_t index      # of the timer's node
    uint32_t mark       # its tag << 8 | the low byte of its tick

cdef struct Chunk:
    uint32_t next
    uint16_t start
    uint16_t end
    Entry entries[CHUNK_ENTRIES]

cdef struct Slot:
    uint32_t head
    uint32_t tail
    uint32_t count      # of entries, the stale ones included

cdef struct Pool:
    Chunk** blocks      # blocks never move: growing copies nothing but this directory
    uint32_t block_count
    uint32_t used       # chunks ever taken from the blocks, chunk 0 included
    uint32_t free_head  # chunks given back, linked through `next`
    uint32_t free_count
    uint32_t held       # chunks set aside: slot_append must leave that many available


cdef inline Chunk* chunk_at(Pool* pool, uint32_t number) noexcept nogil:
    return &pool.blocks[number >> POOL_SHIFT][number & POOL_MASK]


cdef inline size_t pool_available(Pool* pool) noexcept nogil:
    return pool.free_count + ((<size_t>pool.block_count << POOL_SHIFT) - pool.used)


cdef inline int pool_reserve(Pool* pool, size_t chunks) noexcept nogil:
    """Make sure that `chunks` can be taken; -1 when there is no memory for them."""
    cdef Chunk** blocks
    cdef Chunk* block
    while pool_available(pool) < chunks:
        if pool.block_count == (<uint32_t>0xFFFFFFFF >> POOL_SHIFT):
            return -1
        blocks = <Chunk**>PyMem_RawRealloc(pool.blocks, (pool.block_count + 1) * sizeof(Chunk*))
        if blocks == NULL:
            return -1
        pool.blocks = blocks
        block = <Chunk*>PyMem_RawMalloc(POOL_BLOCK * sizeof(Chunk))
        if block == NULL:
            return -1
        blocks[pool.block_count] = block
        pool.block_count += 1
        if pool.used == 0:
            pool.used = 1
    return 0


cdef inline uint32_t pool_take(Pool* pool) noexcept nogil:
    """An empty chunk, or 0 when there is no memory for one."""
    cdef uint32_t number
    cdef Chunk* chunk
    if pool_reserve(pool, <size_t>pool.held + 1) < 0:
        return 0
    number = pool.free_head
    if number != 0:
        chunk = chunk_at(pool, number)
        pool.free_head = chunk.next
        pool.free_count -= 1
    else:
        number = pool.used
        pool.used += 1
        chunk = chunk_at(pool, number)
    chunk.next = 0
    chunk.start = 0
    chunk.end = 0
    return number


cdef inline void pool_give(Pool* pool, uint32_t number) noexcept nogil:
    chunk_at(pool, number).next = pool.free_head
    pool.free_head = number
    pool.free_count += 1


cdef inline void pool_release(Pool* pool) noexcept nogil:
    cdef uint32_t i
    for i in range(pool.block_count):
        PyMem_RawFree(pool.blocks[i])
    PyMem_RawFree(pool.blocks)


cdef inline int slot_append(Pool* pool, Slot* slot, uint32_t index, uint32_t mark) noexcept nogil:
    """Write an entry at the end; -1, and nothing changed, when there is no memory."""
    cdef uint32_t number = slot.tail
    cdef Chunk* chunk
    if number == 0 or chunk_at(pool, number).end == CHUNK_ENTRIES:
        number = pool_take(pool)
        if number == 0:
            return -1
        if slot.tail == 0:
            slot.head = number
        else:
            chunk_at(pool, slot.tail).next = number
        slot.tail = number
    chunk = chunk_at(pool, number)
    chunk.entries[chunk.end].index = index
    chunk.entries[chunk.end].mark = mark
    chunk.end += 1
    slot.count += 1
    return 0


cdef inline void slot_pop_chunk(Pool* pool, Slot* slot) noexcept nogil:
    """Give the first chunk back, read or not."""
    cdef uint32_t number = slot.head
    slot.head = chunk_at(pool, number).next
    if slot.head == 0:
        slot.tail = 0
    pool_give(pool, number)


cdef inline void slot_join(Pool* pool, Slot* slot, Slot rest) noexcept nogil:
    """Hang the chain of another slot, which is then nobody's, behind this one's."""
    if rest.head == 0:
        return
    if slot.tail == 0:
        slot.head = rest.head
    else:
        chunk_at(pool, slot.tail).next = rest.head
    slot.tail = rest.tail
    slot.count += rest.count
