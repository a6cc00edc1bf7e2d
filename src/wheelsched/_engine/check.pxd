"""Check: every invariant of the engine, verified. What it returns is what is wrong, or NULL."""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from .index cimport Index, index_find
from .levels cimport (
    BLOCK_SHIFT, COARSE, COARSE_SLOTS, COARSE_WORD, FAR, FAR_SLOTS, FAR_WORD,
    FINE_SLOTS, LATE, SLOTS, SPAN_SHIFT, SPAN_TICKS_SHIFT, TICK_MASK, Engine, block_now,
    coarse_reach, is_live, tick_of,
)
from .nodes cimport LAST_GENERATION, Node, Nodes, free_at, is_free, key_at, node_at
from .slots cimport CHUNK_ENTRIES, Chunk, Entry, Slot, chunk_at

cdef struct Tally:
    uint8_t* timers     # by node: 1 when its live entry, or its place in the free stack, was seen
    uint8_t* chunks     # by chunk: 1 when it was seen
    uint64_t live
    uint64_t stale
    uint64_t chunks_seen


cdef inline int64_t first_tick_of_slot(
    Engine* engine, uint32_t number, uint32_t mark
) noexcept nogil:
    """The tick at which an entry of this slot is looked at."""
    cdef int64_t now = engine.tick
    cdef int64_t span, block
    if number < COARSE:
        return now + ((number - now) & (FINE_SLOTS - 1))
    if number < FAR:
        block = block_now(engine)
        block += (number - COARSE - block) & (COARSE_SLOTS - 1)
        return (block << BLOCK_SHIFT) + (mark & TICK_MASK)
    if number < LATE:
        span = engine.coarse_end >> SPAN_SHIFT
        span += (number - FAR - span) & (FAR_SLOTS - 1)
        return span << SPAN_TICKS_SHIFT
    return -1


cdef inline const char* check_entry(
    Engine* engine, uint32_t number, Entry* entry, Tally* tally
) noexcept nogil:
    cdef Node* node
    cdef int64_t met
    if entry.index >= engine.nodes.used:
        return b"an entry points beyond the nodes"
    node = node_at(&engine.nodes, entry.index)
    if not is_live(node, entry.mark):
        tally.stale += 1
        return NULL
    if is_free(node):
        return b"an entry is live and its timer is not"
    if tally.timers[entry.index]:
        return b"a timer has two live entries"
    tally.timers[entry.index] = 1
    tally.live += 1
    met = first_tick_of_slot(engine, number, entry.mark)
    if met > tick_of(engine, node.deadline_ns):
        return b"an entry would be met after its deadline"
    if number < COARSE and met >= (block_now(engine) + 2) << BLOCK_SHIFT:
        return b"a fine slot before the current tick is not empty"
    return NULL


cdef inline const char* check_slot(Engine* engine, uint32_t number, Tally* tally) noexcept nogil:
    cdef Slot* slot = &engine.slots[number]
    cdef bint occupied = (engine.occupied[number >> 6] >> (number & 63)) & 1
    cdef uint32_t chunk_number = slot.head
    cdef uint32_t last = 0
    cdef uint64_t count = 0
    cdef Chunk* chunk
    cdef uint32_t i
    cdef const char* problem
    if occupied != (slot.count != 0):
        return b"an occupancy bit is wrong"
    while chunk_number != 0:
        if chunk_number >= engine.pool.used or tally.chunks[chunk_number]:
            return b"a chunk is in two chains"
        tally.chunks[chunk_number] = 1
        tally.chunks_seen += 1
        chunk = chunk_at(&engine.pool, chunk_number)
        if chunk.start >= chunk.end or chunk.end > CHUNK_ENTRIES:
            return b"a chunk in a chain is empty or overfull"
        for i in range(chunk.start, chunk.end):
            problem = check_entry(engine, number, &chunk.entries[i], tally)
            if problem != NULL:
                return problem
        count += chunk.end - chunk.start
        last = chunk_number
        chunk_number = chunk.next
    if slot.tail != last:
        return b"a slot's tail is not its last chunk"
    if slot.count != count:
        return b"a slot's count is wrong"
    return NULL


cdef inline const char* check_free(Engine* engine, Tally* tally) noexcept nogil:
    """The free stack and the free chunks: nothing twice, nothing that is in use, nothing lost."""
    cdef Nodes* nodes = &engine.nodes
    cdef uint32_t position, index, chunk_number, free_chunks
    for position in range(nodes.free_count):
        index = free_at(nodes, position)[0]
        if index >= nodes.used or not is_free(node_at(nodes, index)):
            return b"a node in the free stack is in use"
        if tally.timers[index]:
            return b"a node is twice in the free stack"
        tally.timers[index] = 1
    for index in range(nodes.used):
        if not tally.timers[index] and node_at(nodes, index).generation != LAST_GENERATION:
            return b"a node is neither free nor has an entry"
    chunk_number = engine.pool.free_head
    free_chunks = engine.pool.free_count
    while chunk_number != 0:
        if chunk_number >= engine.pool.used or tally.chunks[chunk_number]:
            return b"a free chunk is in use"
        tally.chunks[chunk_number] = 1
        tally.chunks_seen += 1
        free_chunks -= 1
        chunk_number = chunk_at(&engine.pool, chunk_number).next
    if free_chunks != 0:
        return b"the number of free chunks is wrong"
    return NULL


cdef inline const char* check_totals(Engine* engine, Tally* tally) noexcept nogil:
    cdef Nodes* nodes = &engine.nodes
    cdef uint32_t word
    if tally.live != engine.timers:
        return b"the number of timers is wrong"
    if tally.stale != engine.stale:
        return b"the number of stale entries is wrong"
    if engine.timers + nodes.free_count + nodes.retired != nodes.used:
        return b"nodes are lost"
    if engine.pool.used != 0 and tally.chunks_seen != engine.pool.used - 1:
        return b"chunks are lost"
    if engine.pool.held != 0:
        return b"chunks are held between operations"
    if engine.coarse_end > coarse_reach(engine) or engine.coarse_end & ((1 << SPAN_SHIFT) - 1):
        return b"the end of the coarse level is wrong"
    for word in range(COARSE_WORD, <uint32_t>FAR_WORD):
        if ((engine.coarse_words >> (word - COARSE_WORD)) & 1) != (engine.occupied[word] != 0):
            return b"a summary bit is wrong"
    if engine.tick > (engine.now_ns >> engine.tick_shift) + 1:
        return b"the wheel has run ahead of its time"
    return NULL


cdef inline const char* check_all(Engine* engine, Tally* tally) noexcept nogil:
    cdef const char* problem = NULL
    cdef uint32_t number
    for number in range(<uint32_t>SLOTS):
        problem = check_slot(engine, number, tally)
        if problem != NULL:
            return problem
    problem = check_free(engine, tally)
    if problem == NULL:
        problem = check_totals(engine, tally)
    return problem


cdef inline const char* no_memory_to_check() noexcept nogil:
    return b"there is no memory for the check"


cdef inline const char* check_engine(Engine* engine) noexcept nogil:
    cdef Tally tally
    cdef const char* problem = no_memory_to_check()
    tally.live = 0
    tally.stale = 0
    tally.chunks_seen = 0
    tally.timers = <uint8_t*>PyMem_RawCalloc(<size_t>engine.nodes.used + 1, 1)
    tally.chunks = <uint8_t*>PyMem_RawCalloc(<size_t>engine.pool.used + 1, 1)
    if tally.timers != NULL and tally.chunks != NULL:
        problem = check_all(engine, &tally)
    PyMem_RawFree(tally.timers)
    PyMem_RawFree(tally.chunks)
    return problem


cdef inline const char* check_index(Engine* engine, Index* index) noexcept nogil:
    cdef Nodes* nodes = &engine.nodes
    cdef uint32_t node
    if index.count != engine.timers:
        return b"the index has more or fewer keys than there are timers"
    for node in range(nodes.used):
        if is_free(node_at(nodes, node)):
            continue
        if index_find(index, nodes, key_at(nodes, node)) != node:
            return b"a key is not indexed"
    return NULL
