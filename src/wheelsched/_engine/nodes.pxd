"""Nodes: the timers themselves, found by index.

They live in segments that never move. A handle is generation << 32 | index; freeing a node
bumps its generation, so that a stale handle never reaches the next timer in the same place.
A node whose generations are used up is retired rather than handed out again.

A segment holds its nodes, each followed by its key, then its share of the free stack and the
links that the caller asked for, in one allocation: it exists whole or not at all.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    SEGMENT_SHIFT = 13
    SEGMENT_NODES = 1 << SEGMENT_SHIFT
    SEGMENT_MASK = SEGMENT_NODES - 1
    LAST_GENERATION = 0x7FFFFFFF
    LAST_INDEX = (1 << 29) - 1      # sweep.pxd says why no more

cdef struct Node:
    int64_t deadline_ns     # of a free node: the complement of its last one, and so negative
    uint32_t generation
    uint32_t tag        # counts the entries that went stale: entries of other tags are void

cdef struct Nodes:
    char** segments
    size_t segment_count
    size_t segment_bytes
    size_t node_bytes           # with the key
    size_t free_offset
    size_t links_offset
    int key_shift               # a key is 1 << key_shift words of 64 bits
    uint64_t hash_seed
    uint32_t first_generation
    uint32_t last_generation    # the highest that was ever handed out
    uint32_t used               # indices ever handed out
    uint32_t free_count
    uint32_t retired


cdef inline void nodes_init(
    Nodes* nodes, uint32_t first_generation, int key_words, bint linked
) noexcept nogil:
    """Every node gets `key_words` words (0, 1 or 2) for its key, and a link if asked for."""
    nodes.first_generation = first_generation
    nodes.last_generation = first_generation
    nodes.node_bytes = sizeof(Node) + key_words * sizeof(int64_t)
    nodes.free_offset = SEGMENT_NODES * nodes.node_bytes
    nodes.links_offset = nodes.free_offset + SEGMENT_NODES * sizeof(uint32_t)
    nodes.key_shift = 1 if key_words == 2 else 0
    nodes.segment_bytes = nodes.links_offset + linked * SEGMENT_NODES * sizeof(uint32_t)


cdef inline Node* node_at(Nodes* nodes, uint32_t index) noexcept nogil:
    cdef char* segment = nodes.segments[index >> SEGMENT_SHIFT]
    return <Node*>(segment + (index & SEGMENT_MASK) * nodes.node_bytes)


cdef inline int64_t* key_at(Nodes* nodes, uint32_t index) noexcept nogil:
    return <int64_t*>(node_at(nodes, index) + 1)


cdef inline uint32_t* link_at(Nodes* nodes, uint32_t index) noexcept nogil:
    cdef char* segment = nodes.segments[index >> SEGMENT_SHIFT]
    return <uint32_t*>(segment + nodes.links_offset) + (index & SEGMENT_MASK)


cdef inline uint32_t* free_at(Nodes* nodes, uint32_t position) noexcept nogil:
    cdef char* segment = nodes.segments[position >> SEGMENT_SHIFT]
    return <uint32_t*>(segment + nodes.free_offset) + (position & SEGMENT_MASK)


cdef inline bint is_free(Node* node) noexcept nogil:
    return node.deadline_ns < 0


cdef inline size_t nodes_capacity(Nodes* nodes) noexcept nogil:
    return nodes.segment_count << SEGMENT_SHIFT


cdef inline int nodes_reserve(Nodes* nodes, size_t timers) noexcept nogil:
    """Make sure that `timers` more nodes can be taken; -1 when there is no memory for them."""
    cdef char** segments
    cdef char* segment
    cdef size_t fresh
    if timers <= nodes.free_count:
        return 0
    fresh = nodes.used + (timers - nodes.free_count)
    if fresh > LAST_INDEX:
        return -1
    while nodes_capacity(nodes) < fresh:
        segments = <char**>PyMem_RawRealloc(
            nodes.segments, (nodes.segment_count + 1) * sizeof(char*)
        )
        if segments == NULL:
            return -1
        nodes.segments = segments
        segment = <char*>PyMem_RawMalloc(nodes.segment_bytes)
        if segment == NULL:
            return -1
        segments[nodes.segment_count] = segment
        nodes.segment_count += 1
    return 0


cdef inline uint32_t node_take(Nodes* nodes, int64_t deadline_ns) noexcept nogil:
    """The index of a node that now holds this deadline; room must have been reserved."""
    cdef uint32_t index
    cdef Node* node
    if nodes.free_count != 0:
        nodes.free_count -= 1
        index = free_at(nodes, nodes.free_count)[0]
        node = node_at(nodes, index)
        if node.generation > nodes.last_generation:
            nodes.last_generation = node.generation
    else:
        index = nodes.used
        nodes.used += 1
        node = node_at(nodes, index)
        node.generation = nodes.first_generation
        node.tag = 0
    node.deadline_ns = deadline_ns
    return index


cdef inline void node_give(Nodes* nodes, Node* node, uint32_t index) noexcept nogil:
    """Free a node: from here on its handles are stale."""
    node.deadline_ns = ~node.deadline_ns
    node.generation += 1
    if node.generation == LAST_GENERATION:
        nodes.retired += 1
    else:
        free_at(nodes, nodes.free_count)[0] = index
        nodes.free_count += 1


cdef inline int64_t expired_ns(Nodes* nodes, uint32_t index) noexcept nogil:
    """The deadline of a node that was freed, and not taken again."""
    return ~node_at(nodes, index).deadline_ns


cdef inline void node_take_back(Nodes* nodes, uint32_t index) noexcept nogil:
    """Undo node_give for one of the nodes that were freed last; their handles hold again."""
    cdef Node* node = node_at(nodes, index)
    if node.generation == LAST_GENERATION:
        nodes.retired -= 1
    else:
        nodes.free_count -= 1
    node.generation -= 1
    node.deadline_ns = ~node.deadline_ns


cdef inline bint handle_is_foreign(Nodes* nodes, int64_t handle) noexcept nogil:
    """No handle of this wheel looks like that: it was issued elsewhere, or made up."""
    cdef int64_t generation = handle >> 32
    return (
        generation < nodes.first_generation
        or generation > nodes.last_generation
        or <uint32_t>handle >= nodes.used
    )


cdef inline Node* node_of_handle(Nodes* nodes, int64_t handle) noexcept nogil:
    """The node of a handle that is not foreign, or NULL when its timer is gone."""
    cdef Node* node = node_at(nodes, <uint32_t>handle)
    if node.generation != <uint32_t>(handle >> 32) or is_free(node):
        return NULL
    return node


cdef inline int64_t handle_of(Nodes* nodes, uint32_t index) noexcept nogil:
    return <int64_t>(<uint64_t>node_at(nodes, index).generation << 32 | index)


cdef inline int64_t next_handle(Nodes* nodes) noexcept nogil:
    """The handle of the timer that will be added next; room must have been reserved."""
    if nodes.free_count != 0:
        return handle_of(nodes, free_at(nodes, nodes.free_count - 1)[0])
    return <int64_t>(<uint64_t>nodes.first_generation << 32 | nodes.used)


cdef inline void nodes_release(Nodes* nodes) noexcept nogil:
    cdef size_t i
    for i in range(nodes.segment_count):
        PyMem_RawFree(nodes.segments[i])
    PyMem_RawFree(nodes.segments)
