"""Index: finding a timer by its key.

Linear hashing: chains of nodes hang from buckets, and each insertion that finds more timers
than buckets splits the next bucket in turn. The table grows one bucket at a time, so there
is no moment at which all of it is hashed again, and it costs 8 bytes a timer: a bucket's
head and a node's link. Both hold index + 1; 0 ends a chain.
"""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int64_t, uint32_t, uint64_t

from .nodes cimport Nodes, key_at, link_at, node_at
from .slots cimport prefetch

cdef enum:
    BUCKETS_SHIFT = 13
    BUCKETS_FIRST = 1 << BUCKETS_SHIFT      # to begin with, and in each segment
    BUCKETS_MASK = BUCKETS_FIRST - 1
    NOT_FOUND = 0xFFFFFFFF

cdef struct Index:
    uint32_t** segments
    size_t segment_count
    size_t count        # keys
    size_t buckets
    size_t round        # a power of two: buckets below it + splits done = `buckets`


cdef inline uint64_t mix(uint64_t word) noexcept nogil:
    word ^= word >> 32
    word *= <uint64_t>0xD6E8FEB86659FD93
    word ^= word >> 32
    word *= <uint64_t>0xD6E8FEB86659FD93
    word ^= word >> 32
    return word


cdef inline uint64_t hash_key(Nodes* nodes, const int64_t* key) noexcept nogil:
    """Seeded, so that nobody can choose keys that share a bucket."""
    cdef uint64_t hashed = mix(<uint64_t>key[0] ^ nodes.hash_seed)
    return hashed if nodes.key_shift == 0 else mix(hashed ^ <uint64_t>key[1])


cdef inline bint same_key(Nodes* nodes, const int64_t* left, const int64_t* right) noexcept nogil:
    return left[0] == right[0] and (nodes.key_shift == 0 or left[1] == right[1])


cdef inline uint32_t* head_at(Index* index, size_t bucket) noexcept nogil:
    return &index.segments[bucket >> BUCKETS_SHIFT][bucket & BUCKETS_MASK]


cdef inline uint32_t* head_of(Index* index, uint64_t hashed) noexcept nogil:
    cdef size_t bucket = hashed & (2 * index.round - 1)
    if bucket >= index.buckets:
        bucket -= index.round
    return head_at(index, bucket)


cdef inline int index_reserve(Index* index, size_t keys) noexcept nogil:
    """Make sure that `keys` more can be inserted; -1 when there is no memory for them."""
    cdef size_t buckets = max(index.count + keys, <size_t>BUCKETS_FIRST)
    cdef uint32_t** segments
    cdef uint32_t* segment
    while index.segment_count << BUCKETS_SHIFT < buckets:
        segments = <uint32_t**>PyMem_RawRealloc(
            index.segments, (index.segment_count + 1) * sizeof(uint32_t*)
        )
        if segments == NULL:
            return -1
        index.segments = segments
        segment = <uint32_t*>PyMem_RawCalloc(BUCKETS_FIRST, sizeof(uint32_t))
        if segment == NULL:
            return -1
        segments[index.segment_count] = segment
        index.segment_count += 1
    if index.buckets == 0:
        index.buckets = BUCKETS_FIRST
        index.round = BUCKETS_FIRST
    return 0


cdef inline void split_bucket(Index* index, Nodes* nodes) noexcept nogil:
    """Add a bucket, and move to it what belongs there from the bucket it splits."""
    cdef size_t added = index.buckets
    cdef uint32_t* kept_end = head_at(index, added - index.round)
    cdef uint32_t* moved_end = head_at(index, added)
    cdef uint32_t member = kept_end[0]
    while member != 0:
        if hash_key(nodes, key_at(nodes, member - 1)) & (2 * index.round - 1) == added:
            moved_end[0] = member
            moved_end = link_at(nodes, member - 1)
        else:
            kept_end[0] = member
            kept_end = link_at(nodes, member - 1)
        member = link_at(nodes, member - 1)[0]
    kept_end[0] = 0
    moved_end[0] = 0
    index.buckets += 1
    if index.buckets == 2 * index.round:
        index.round = index.buckets


cdef inline uint32_t index_find(Index* index, Nodes* nodes, const int64_t* key) noexcept nogil:
    cdef uint32_t member
    if index.count == 0:
        return NOT_FOUND
    member = head_of(index, hash_key(nodes, key))[0]
    while member != 0:
        if same_key(nodes, key_at(nodes, member - 1), key):
            return member - 1
        member = link_at(nodes, member - 1)[0]
    return NOT_FOUND


cdef inline void index_insert(Index* index, Nodes* nodes, uint32_t node) noexcept nogil:
    """Insert a node whose key is set and not yet indexed; room must have been reserved."""
    cdef uint32_t* head
    if index.count == index.buckets:
        split_bucket(index, nodes)
    head = head_of(index, hash_key(nodes, key_at(nodes, node)))
    link_at(nodes, node)[0] = head[0]
    head[0] = node + 1
    index.count += 1


cdef inline void index_remove(Index* index, Nodes* nodes, uint32_t node) noexcept nogil:
    """Remove an indexed node; its key must still be there."""
    cdef uint32_t* link = head_of(index, hash_key(nodes, key_at(nodes, node)))
    while link[0] != node + 1:
        link = link_at(nodes, link[0] - 1)
    link[0] = link_at(nodes, node)[0]
    index.count -= 1


cdef inline void prefetch_bucket(Index* index, Nodes* nodes, const int64_t* key) noexcept nogil:
    if index.count != 0:
        prefetch(head_of(index, hash_key(nodes, key)))


cdef inline void prefetch_member(Index* index, Nodes* nodes, const int64_t* key) noexcept nogil:
    cdef uint32_t member
    if index.count != 0:
        member = head_of(index, hash_key(nodes, key))[0]
        if member != 0:
            prefetch(node_at(nodes, member - 1))
            prefetch(link_at(nodes, member - 1))


cdef inline void index_clear(Index* index) noexcept nogil:
    """Forget every key, and give the buckets back."""
    cdef size_t i
    for i in range(index.segment_count):
        PyMem_RawFree(index.segments[i])
    PyMem_RawFree(index.segments)
    index.segments = NULL
    index.segment_count = 0
    index.count = 0
    index.buckets = 0
    index.round = 0
