"""Order: the exact one inside a tick, for wheels that were asked for it.

Stale entries are dropped on the occasion, so that the sweep has nothing left to do there.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport qsort

from .levels cimport Engine, is_live, put_entry
from .nodes cimport Node, node_at
from .slots cimport Chunk, Entry, Slot, chunk_at
from .sweep cimport drop_slot

cdef struct Ordered:
    int64_t deadline_ns
    uint32_t position
    Entry entry


cdef inline int compare_ordered(const void* left, const void* right) noexcept nogil:
    cdef Ordered* a = <Ordered*>left
    cdef Ordered* b = <Ordered*>right
    if a.deadline_ns != b.deadline_ns:
        return 1 if a.deadline_ns > b.deadline_ns else -1
    return 1 if a.position > b.position else -1


cdef inline uint32_t gather_live(Engine* engine, Slot* slot, Ordered* gathered) noexcept nogil:
    cdef uint32_t number = slot.head
    cdef uint32_t count = 0
    cdef uint32_t i
    cdef Chunk* chunk
    cdef Node* node
    while number != 0:
        chunk = chunk_at(&engine.pool, number)
        for i in range(chunk.start, chunk.end):
            node = node_at(&engine.nodes, chunk.entries[i].index)
            if is_live(node, chunk.entries[i].mark):
                gathered[count].entry = chunk.entries[i]
                gathered[count].deadline_ns = node.deadline_ns
                gathered[count].position = count
                count += 1
        number = chunk.next
    return count


cdef inline int order_slot(Engine* engine, uint32_t number) noexcept nogil:
    """Put the entries of a slot in the order of their deadlines, equal ones as they came.

    -1, and nothing changed, without memory.
    """
    cdef Slot* slot = &engine.slots[number]
    cdef Ordered* gathered
    cdef uint32_t count, i
    if slot.count < 2:
        return 0
    gathered = <Ordered*>PyMem_RawMalloc(slot.count * sizeof(Ordered))
    if gathered == NULL:
        return -1
    count = gather_live(engine, slot, gathered)
    qsort(gathered, count, sizeof(Ordered), &compare_ordered)
    drop_slot(engine, number)
    engine.stale += count       # which drop_slot took for stale
    engine.swept -= count
    for i in range(count):      # into the chunks that were just given back
        put_entry(engine, number, gathered[i].entry.index, gathered[i].entry.mark)
    PyMem_RawFree(gathered)
    return 0
