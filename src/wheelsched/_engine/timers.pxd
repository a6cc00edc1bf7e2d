"""Timers: adding, cancelling and moving them one by one, and counting them all.

Reserve first, then add: with the room reserved nothing can fail, and so a batch is done whole
or not at all.
"""

from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from .levels cimport SLOTS, WORDS, Engine, chunks_for, coarse_reach, place, tick_of
from .nodes cimport (
    Node, is_free, node_at, node_give, node_take, nodes_release, nodes_reserve,
)
from .slots cimport POOL_BLOCK, Chunk, Slot, pool_release, pool_reserve
from .sweep cimport entry_went_stale


cdef inline void engine_init(
    Engine* engine, int64_t now_ns, int tick_shift, bint exact_order
) noexcept nogil:
    memset(engine, 0, sizeof(Engine))
    engine.now_ns = now_ns
    engine.tick_shift = tick_shift
    engine.exact_order = exact_order
    engine.tick = (now_ns >> tick_shift) + 1
    engine.ordered_tick = -1
    engine.coarse_end = coarse_reach(engine)


cdef inline void engine_release(Engine* engine) noexcept nogil:
    nodes_release(&engine.nodes)
    pool_release(&engine.pool)
    PyMem_RawFree(engine.expired)


cdef inline void engine_clear(Engine* engine) noexcept nogil:
    """Cancel every timer at once. What was allocated stays, for the timers to come."""
    cdef uint32_t index
    cdef Node* node
    for index in range(engine.nodes.used):
        node = node_at(&engine.nodes, index)
        if not is_free(node):
            node_give(&engine.nodes, node, index)
    engine.cancelled += engine.timers
    engine.timers = 0
    engine.stale = 0
    engine.sweeping = False
    memset(engine.slots, 0, SLOTS * sizeof(Slot))
    memset(engine.occupied, 0, WORDS * sizeof(uint64_t))
    engine.coarse_words = 0
    engine.pool.used = 1 if engine.pool.block_count != 0 else 0
    engine.pool.free_head = 0
    engine.pool.free_count = 0


cdef inline int reserve_entries(Engine* engine, size_t entries) noexcept nogil:
    return pool_reserve(&engine.pool, chunks_for(entries))


cdef inline int reserve_timers(Engine* engine, size_t timers) noexcept nogil:
    if nodes_reserve(&engine.nodes, timers) < 0:
        return -1
    return reserve_entries(engine, timers)


cdef inline void touch(char* memory, size_t size) noexcept nogil:
    """Write to each page, so that it is there before it is needed."""
    cdef size_t at = 0
    while at < size:
        memory[at] = 0
        at += 4096


cdef inline void touch_reserved(Engine* engine) noexcept nogil:
    """To be done before the first timer."""
    cdef size_t i
    for i in range(engine.nodes.segment_count):
        touch(engine.nodes.segments[i], engine.nodes.segment_bytes)
    for i in range(engine.pool.block_count):
        touch(<char*>engine.pool.blocks[i], POOL_BLOCK * sizeof(Chunk))


cdef inline uint32_t add_timer(Engine* engine, int64_t deadline_ns) noexcept nogil:
    """The index of the new timer; room must have been reserved."""
    cdef uint32_t index = node_take(&engine.nodes, deadline_ns)
    place(engine, index, node_at(&engine.nodes, index).tag, deadline_ns)
    engine.timers += 1
    return index


cdef inline void cancel_timer(Engine* engine, Node* node, uint32_t index) noexcept nogil:
    """Forget a timer; its entry goes stale where it is."""
    node.tag += 1
    node_give(&engine.nodes, node, index)
    engine.timers -= 1
    engine.cancelled += 1
    entry_went_stale(engine)


cdef inline bint moves_earlier(Engine* engine, Node* node, int64_t deadline_ns) noexcept nogil:
    return tick_of(engine, deadline_ns) < tick_of(engine, node.deadline_ns)


cdef inline int move_timer(
    Engine* engine, Node* node, uint32_t index, int64_t deadline_ns
) noexcept nogil:
    """Give a timer another deadline; -1, and nothing changed, without memory for an entry.

    To a later tick, or within its own, that is one store: the old entry is met at the latest
    at that tick, and written again where the timer belongs by then. To an earlier tick it
    takes a new entry.
    """
    if not moves_earlier(engine, node, deadline_ns):
        node.deadline_ns = deadline_ns
        return 0
    if place(engine, index, node.tag + 1, deadline_ns) < 0:
        return -1
    node.tag += 1
    node.deadline_ns = deadline_ns
    engine.replaced += 1
    entry_went_stale(engine)
    return 0


cdef inline void count_due(
    Engine* engine, int64_t from_ns, int64_t to_ns, int64_t step_ns, uint64_t* counts
) noexcept nogil:
    """How many timers are due in each step of [from_ns, to_ns)."""
    cdef uint32_t index
    cdef int64_t deadline_ns
    for index in range(engine.nodes.used):
        deadline_ns = node_at(&engine.nodes, index).deadline_ns
        if from_ns <= deadline_ns < to_ns:
            counts[(deadline_ns - from_ns) // step_ns] += 1
