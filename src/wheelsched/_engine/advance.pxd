"""Advance: moving time forward.

The current block is drained tick by tick, and the next one is split into its ticks in small
portions on the way there, so that no single tick pays for a crowded block. Empty stretches
are skipped by the occupancy bits, whatever their length.

Expired timers are freed as they are met and collected as node indices: their keys stay
readable until the next timer is added. Everything here can stop between two entries, at the
caller's limit or without memory, and go on from there later.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport INT64_MAX, UINT32_MAX, int64_t, uint32_t, uint64_t

from .levels cimport (
    BLOCK_SHIFT, BLOCK_TICKS, FAR_WORD, FINE, FINE_SLOTS, LATE, SPAN_BLOCKS, SPAN_SHIFT,
    SPAN_TICKS_SHIFT, TICK_MASK, Engine, block_now, chunks_for, coarse_block_after, coarse_reach,
    coarse_slot, far_slot, far_span_from, fine_tick_from, is_live, mark_empty, mark_of, put_entry,
    slot_for, tick_of,
)
from .nodes cimport Node, node_at, node_give, node_take_back
from .order cimport order_slot
from .slots cimport (
    CHUNK_ENTRIES, Chunk, Entry, Slot, chunk_at, pool_reserve, prefetch, slot_join, slot_pop_chunk,
)
from .sweep cimport earliest_in, forget_slot, release_head, timers_went

cdef enum Status:
    DONE = 0
    FULL = 1
    NO_MEMORY = -1

cdef enum:
    PREFETCH_AHEAD = 24
    PREFETCH_BLOCK_MOST = 2048      # timers of a block that stay in the cache until it is drained
    SPLIT_LEAST = 64        # entries of the next block that every advance may split
    PULL_MOST = 2048        # entries of a far span that one advance pulls nearer
    EXPIRED_LEAST = 1024


cdef inline void prefetch_ahead(
    Engine* engine, Chunk* chunk, Chunk* following, uint32_t i
) noexcept nogil:
    cdef uint32_t ahead = i + PREFETCH_AHEAD
    if ahead < chunk.end:
        prefetch(node_at(&engine.nodes, chunk.entries[ahead].index))
    elif following != NULL:
        ahead = following.start + ahead - chunk.end
        if ahead < following.end:
            prefetch(node_at(&engine.nodes, following.entries[ahead].index))


cdef inline int grow_expired(Engine* engine) noexcept nogil:
    cdef size_t capacity = max(2 * engine.expired_capacity, <size_t>EXPIRED_LEAST)
    cdef uint32_t* expired = <uint32_t*>PyMem_RawRealloc(
        engine.expired, capacity * sizeof(uint32_t)
    )
    if expired == NULL:
        return -1
    engine.expired = expired
    engine.expired_capacity = capacity
    return 0


cdef inline int collect(Engine* engine, uint32_t index) noexcept nogil:
    """Note an expired timer, with a chunk held for every 31 of them in case of take_back."""
    if engine.expired_count == engine.expired_capacity and grow_expired(engine) < 0:
        return -1
    if engine.expired_count % CHUNK_ENTRIES == 0:
        if pool_reserve(&engine.pool, <size_t>engine.pool.held + 1) < 0:
            return -1
        engine.pool.held += 1
    engine.expired[engine.expired_count] = index
    engine.expired_count += 1
    return 0


cdef inline Status drain_entry(
    Engine* engine, Entry* entry, int64_t due_ns, size_t limit
) noexcept nogil:
    cdef Node* node = node_at(&engine.nodes, entry.index)
    cdef int64_t deadline_ns = node.deadline_ns
    cdef uint32_t number
    if not is_live(node, entry.mark):
        engine.stale -= 1
        return DONE
    if deadline_ns > due_ns:    # it was moved to a later time
        number = slot_for(engine, deadline_ns, engine.coarse_end)
        if put_entry(engine, number, entry.index, mark_of(engine, node.tag, deadline_ns)) < 0:
            return NO_MEMORY
        engine.replaced += 1
        return DONE
    if engine.expired_count == limit:
        return FULL
    if collect(engine, entry.index) < 0:
        return NO_MEMORY
    node_give(&engine.nodes, node, entry.index)
    return DONE


cdef inline Status drain(
    Engine* engine, uint32_t number, int64_t due_ns, size_t limit
) noexcept nogil:
    """Empty a slot: what is due by `due_ns` is collected, what was moved is placed again."""
    cdef Slot* slot = &engine.slots[number]
    cdef Status status = DONE
    cdef Chunk* chunk
    cdef Chunk* following
    cdef uint32_t i
    if slot.count == 0:
        return DONE
    while slot.head != 0:
        chunk = chunk_at(&engine.pool, slot.head)
        following = chunk_at(&engine.pool, chunk.next) if chunk.next != 0 else NULL
        i = chunk.start
        while i < chunk.end:
            prefetch_ahead(engine, chunk, following, i)
            status = drain_entry(engine, &chunk.entries[i], due_ns, limit)
            if status != DONE:
                break
            i += 1
        slot.count -= i - chunk.start
        chunk.start = i
        if status != DONE:
            return status
        release_head(engine, number)
    mark_empty(engine, number)
    return DONE


cdef inline Status split_block(Engine* engine, int64_t block, uint64_t most) noexcept nogil:
    """Move up to `most` entries of a coarse slot to the ticks they belong to.

    An entry knows its tick within the block: the timers themselves are not needed here, but
    unless there are too many of them they are fetched into the cache on the occasion.
    """
    cdef uint32_t number = coarse_slot(block)
    cdef uint32_t first = FINE + (<uint32_t>(block & 1) << BLOCK_SHIFT)
    cdef Slot* slot = &engine.slots[number]
    cdef bint few = slot.count <= PREFETCH_BLOCK_MOST
    cdef Chunk* chunk
    cdef Entry entry
    if slot.count == 0:
        return DONE
    while slot.head != 0:
        chunk = chunk_at(&engine.pool, slot.head)
        while chunk.start < chunk.end:
            if most == 0:
                return DONE
            entry = chunk.entries[chunk.start]
            if few:
                prefetch(node_at(&engine.nodes, entry.index))
            if put_entry(engine, first + (entry.mark & TICK_MASK), entry.index, entry.mark) < 0:
                return NO_MEMORY
            chunk.start += 1
            slot.count -= 1
            engine.replaced += 1
            most -= 1
        release_head(engine, number)
    mark_empty(engine, number)
    return DONE


cdef inline Status pull_span(Engine* engine, int64_t span, uint64_t most) noexcept nogil:
    """Move up to `most` entries of a far slot to the blocks they belong to."""
    cdef uint32_t number = far_slot(span)
    cdef int64_t span_end = (span + 1) << SPAN_SHIFT
    cdef Slot* slot = &engine.slots[number]
    cdef Chunk* chunk
    cdef Entry entry
    cdef Node* node
    cdef uint32_t target
    while slot.head != 0:
        chunk = chunk_at(&engine.pool, slot.head)
        while chunk.start < chunk.end:
            if most == 0:
                return DONE
            prefetch_ahead(engine, chunk, NULL, chunk.start)
            entry = chunk.entries[chunk.start]
            node = node_at(&engine.nodes, entry.index)
            if not is_live(node, entry.mark):
                engine.stale -= 1
            else:
                target = slot_for(engine, node.deadline_ns, span_end)
                entry.mark = mark_of(engine, node.tag, node.deadline_ns)
                if put_entry(engine, target, entry.index, entry.mark) < 0:
                    return NO_MEMORY
                engine.replaced += 1
            chunk.start += 1
            slot.count -= 1
            most -= 1
        release_head(engine, number)
    mark_empty(engine, number)
    return DONE


cdef inline Status extend_coarse(Engine* engine, uint64_t most) noexcept nogil:
    """Bring `coarse_end` up to its reach, pulling the far spans on the way.

    At most `most` entries at a time, except of the span that has already begun.
    """
    cdef int64_t reach = coarse_reach(engine)
    cdef int64_t span
    cdef Status status
    while engine.coarse_end < reach:
        span = far_span_from(engine, 0)
        if span < 0 or span << SPAN_SHIFT >= reach:
            engine.coarse_end = reach
            return DONE
        engine.coarse_end = span << SPAN_SHIFT
        if engine.coarse_end <= block_now(engine):
            status = pull_span(engine, span, UINT32_MAX)
        else:
            status = pull_span(engine, span, most)
        if status != DONE:
            return status
        if engine.slots[far_slot(span)].count != 0:
            return DONE
        engine.coarse_end += SPAN_BLOCKS
    return DONE


cdef inline Status bring_block(Engine* engine) noexcept nogil:
    """See that the current block is wholly in the fine slots."""
    cdef Status status = DONE
    if engine.coarse_end <= block_now(engine):
        status = extend_coarse(engine, 0)
    if status == DONE:
        status = split_block(engine, block_now(engine), UINT32_MAX)
    return status


cdef inline int64_t next_stop(Engine* engine, int64_t last_tick) noexcept nogil:
    """The first tick of the next block or span that has entries; beyond `last_tick` any will do."""
    cdef int64_t block = block_now(engine)
    cdef int64_t span
    if last_tick >> BLOCK_SHIFT == block:
        return INT64_MAX
    if fine_tick_from(engine, (block + 1) << BLOCK_SHIFT) >= 0:
        return (block + 1) << BLOCK_SHIFT
    block = coarse_block_after(engine, block)
    span = far_span_from(engine, 0)
    return min(
        block << BLOCK_SHIFT if block >= 0 else INT64_MAX,
        span << SPAN_TICKS_SHIFT if span >= 0 else INT64_MAX,
    )


cdef inline bint only_parked(Engine* engine) noexcept nogil:
    """Whether all entries are in one far slot."""
    cdef uint64_t far = engine.occupied[FAR_WORD]
    return (
        far != 0
        and far & (far - 1) == 0
        and coarse_block_after(engine, block_now(engine) - 1) < 0
        and fine_tick_from(engine, engine.tick) < 0
        and fine_tick_from(engine, (block_now(engine) + 1) << BLOCK_SHIFT) < 0
    )


cdef inline Status leap(Engine* engine, int64_t last_tick) noexcept nogil:
    """Go as far as `last_tick` or the span of the earliest timer, and place all from there.

    Without this, parked timers would be parked again for every 64 spans on the way.
    """
    cdef uint32_t number = far_slot(far_span_from(engine, 0))
    cdef int64_t earliest_ns = earliest_in(engine, number, -1)
    cdef Slot parked = engine.slots[number]     # after a look that may have dropped it
    cdef int64_t tick = last_tick + 1
    cdef uint32_t index
    cdef Chunk* chunk
    cdef Node* node
    if earliest_ns == INT64_MAX:
        return DONE     # all of it was stale, and is gone
    # Beyond the current tick, because the slot is: only the last one parks.
    tick = min(tick, tick_of(engine, earliest_ns) >> SPAN_TICKS_SHIFT << SPAN_TICKS_SHIFT)
    if pool_reserve(&engine.pool, engine.pool.held + chunks_for(parked.count)) < 0:
        return NO_MEMORY
    forget_slot(engine, number)
    engine.tick = tick
    engine.coarse_end = coarse_reach(engine)
    while parked.head != 0:
        chunk = chunk_at(&engine.pool, parked.head)
        while chunk.start < chunk.end:
            index = chunk.entries[chunk.start].index
            node = node_at(&engine.nodes, index)
            if is_live(node, chunk.entries[chunk.start].mark):
                put_entry(
                    engine,
                    slot_for(engine, node.deadline_ns, engine.coarse_end),
                    index,
                    mark_of(engine, node.tag, node.deadline_ns),
                )
                engine.replaced += 1
            else:
                engine.stale -= 1
            chunk.start += 1
        slot_pop_chunk(&engine.pool, &parked)
    return DONE


cdef inline void prefetch_tick(Engine* engine, int64_t tick) noexcept nogil:
    """Have the first timers of a coming tick fetched, and the entries of the one after it."""
    cdef Slot* slot = &engine.slots[FINE + (tick & (FINE_SLOTS - 1))]
    cdef Chunk* chunk
    cdef uint32_t i
    if slot.head != 0:
        chunk = chunk_at(&engine.pool, slot.head)
        for i in range(chunk.start, <uint32_t>min(chunk.end, chunk.start + PREFETCH_AHEAD)):
            prefetch(node_at(&engine.nodes, chunk.entries[i].index))
    slot = &engine.slots[FINE + ((tick + 1) & (FINE_SLOTS - 1))]
    if slot.head != 0:
        prefetch(chunk_at(&engine.pool, slot.head))


cdef inline void look_ahead(Engine* engine, int64_t elapsed) noexcept nogil:
    """Do a share of the work that comes due with the next block and the next span.

    What cannot be done for want of memory is done when it is due.
    """
    cdef int64_t block = block_now(engine) + 1
    cdef int64_t left = (block << BLOCK_SHIFT) - engine.tick
    cdef uint64_t count
    if elapsed == 0 or bring_block(engine) != DONE:
        return
    count = engine.slots[coarse_slot(block)].count
    if count != 0:
        elapsed = min(elapsed, <int64_t>BLOCK_TICKS)
        split_block(engine, block, SPLIT_LEAST + count * elapsed // (left + elapsed))
    extend_coarse(engine, PULL_MOST)
    prefetch_tick(engine, engine.tick)


cdef inline Status drain_tick(Engine* engine, int64_t tick, size_t limit) noexcept nogil:
    cdef uint32_t number = FINE + <uint32_t>(tick & (FINE_SLOTS - 1))
    cdef Status status
    engine.tick = tick
    if engine.exact_order and engine.ordered_tick != tick:
        if order_slot(engine, number) < 0:
            return NO_MEMORY
        engine.ordered_tick = tick
    status = drain(engine, number, tick << engine.tick_shift, limit)
    if status == DONE:
        engine.tick = tick + 1
    return status


cdef inline Status drain_late(Engine* engine, int64_t due_ns, size_t limit) noexcept nogil:
    if engine.exact_order and not engine.late_is_ordered:
        if order_slot(engine, LATE) < 0:
            return NO_MEMORY
        engine.late_is_ordered = True
    return drain(engine, LATE, due_ns, limit)


cdef inline Status advance_to(Engine* engine, int64_t now_ns, size_t limit) noexcept nogil:
    """Collect what is due by `now_ns`, at most `limit`; time never goes backwards.

    Without memory what was collected so far stands, and a later call goes on from there.
    """
    cdef int64_t previous_ns = engine.now_ns
    cdef int64_t first_tick = engine.tick
    cdef int64_t last_tick = now_ns >> engine.tick_shift
    cdef int64_t tick
    cdef Status status
    engine.expired_count = 0
    if now_ns < previous_ns:
        return DONE
    engine.now_ns = now_ns
    status = drain_late(engine, previous_ns, limit)
    while status == DONE and engine.tick <= last_tick:
        status = bring_block(engine)
        if status != DONE:
            break
        tick = fine_tick_from(engine, engine.tick)
        if 0 <= tick <= last_tick:
            status = drain_tick(engine, tick, limit)
        elif only_parked(engine) and last_tick >> SPAN_TICKS_SHIFT >= far_span_from(engine, 0):
            status = leap(engine, last_tick)
        else:
            engine.tick = min(last_tick + 1, next_stop(engine, last_tick))
    look_ahead(engine, engine.tick - first_tick)
    engine.timers -= engine.expired_count
    engine.fired += engine.expired_count
    timers_went(engine, engine.expired_count)
    return status


cdef inline void take_back(Engine* engine) noexcept nogil:
    """The expired could not be handed over: they come first at the next advance."""
    cdef Slot late = engine.slots[LATE]
    cdef size_t i
    cdef uint32_t index
    engine.pool.held = 0
    engine.slots[LATE].head = 0
    engine.slots[LATE].tail = 0
    engine.slots[LATE].count = 0
    for i in range(engine.expired_count):
        index = engine.expired[i]
        node_take_back(&engine.nodes, index)
        put_entry(engine, LATE, index, mark_of(engine, node_at(&engine.nodes, index).tag, 0))
    slot_join(&engine.pool, &engine.slots[LATE], late)
    engine.timers += engine.expired_count
    engine.fired -= engine.expired_count
    engine.expired_count = 0


cdef inline void forget_expired(Engine* engine) noexcept nogil:
    """The expired were handed over: keep a small array for the next time, not a large one."""
    engine.pool.held = 0
    engine.expired_count = 0
    if engine.expired_capacity > 64 * EXPIRED_LEAST:
        PyMem_RawFree(engine.expired)
        engine.expired = NULL
        engine.expired_capacity = 0
