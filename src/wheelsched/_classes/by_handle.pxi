# HandleWheel, Wheel, ObjectWheel: timers that are known by their handle.


cdef list int64_keys(Engine* engine, Py_ssize_t count):
    """The keys of the expired."""
    cdef list keys = PyList_New(count)
    cdef object key
    cdef Py_ssize_t i
    for i in range(count):
        if i + PREFETCH_AHEAD < count:
            prefetch(key_at(&engine.nodes, engine.expired[i + PREFETCH_AHEAD]))
        key = PyLong_FromLongLong(key_at(&engine.nodes, engine.expired[i])[0])
        Py_INCREF(key)
        PyList_SET_ITEM(keys, i, key)
    return keys


cdef void copy_int64_keys(Engine* engine, Py_ssize_t count, int64_t* target) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if i + PREFETCH_AHEAD < count:
            prefetch(key_at(&engine.nodes, engine.expired[i + PREFETCH_AHEAD]))
        target[i] = key_at(&engine.nodes, engine.expired[i])[0]


cdef void add_int64_timers(
    Engine* engine, Py_ssize_t count, const int64_t* deadlines, const int64_t* keys,
    int64_t* handles,
) noexcept nogil:
    cdef uint32_t index
    cdef Py_ssize_t i
    for i in range(count):
        if i + PREFETCH_AHEAD < count:
            prefetch_tail(engine, deadlines[i + PREFETCH_AHEAD])
        index = add_timer(engine, deadlines[i])
        key_at(&engine.nodes, index)[0] = keys[i]
        handles[i] = handle_of(&engine.nodes, index)


cdef class HandleWheel(BaseWheel):
    """Timers that are known by the handle that `add` returned.

    A handle whose timer has expired or was cancelled is stale and reaches nothing, even when
    another timer has taken its place. One that this wheel cannot have issued raises
    ForeignHandle.
    """

    def cancel(self, handle):
        """Cancel a timer; whether it was still waiting."""
        cdef int64_t wanted = as_handle(handle)
        cdef Node* node
        self.require_open()
        node = self.find(wanted)
        if node == NULL:
            return False
        cancel_timer(&self.engine, node, <uint32_t>wanted)
        return True

    def reschedule(self, handle, deadline_ns):
        """Give a timer another deadline, under the same handle; whether it was still waiting."""
        cdef int64_t wanted = as_handle(handle)
        cdef int64_t deadline = self.as_instant(deadline_ns, "deadline_ns")
        cdef Node* node
        self.require_open()
        node = self.find(wanted)
        if node == NULL:
            return False
        if move_timer(&self.engine, node, <uint32_t>wanted, deadline) < 0:
            raise MemoryError("no memory to move a timer")
        return True

    def deadline(self, handle):
        """The deadline of a timer, or None when it is no longer waiting."""
        cdef int64_t wanted = as_handle(handle)
        cdef Node* node
        self.require_open()
        node = self.find(wanted)
        return None if node == NULL else node.deadline_ns

    def cancel_many(self, handles):
        """Cancel a buffer of handles; how many were still waiting."""
        cdef _Buffer wanted = int64_buffer(handles, "handles")
        cdef int64_t* items = wanted.int64s()
        cdef Py_ssize_t cancelled = 0
        cdef Py_ssize_t i
        cdef Node* node
        self.require_open()
        self.require_handles(wanted)
        for i in range(wanted.count):
            if i + PREFETCH_AHEAD < wanted.count:
                prefetch(node_at(&self.engine.nodes, <uint32_t>items[i + PREFETCH_AHEAD]))
            node = node_of_handle(&self.engine.nodes, items[i])
            if node != NULL:
                cancel_timer(&self.engine, node, <uint32_t>items[i])
                cancelled += 1
        return cancelled

    def reschedule_many(self, handles, deadlines_ns):
        """Give a buffer of timers other deadlines; how many were still waiting."""
        cdef _Buffer wanted = int64_buffer(handles, "handles")
        cdef _Buffer deadlines = int64_buffer(deadlines_ns, "deadlines_ns")
        cdef int64_t* items = wanted.int64s()
        cdef int64_t* times = deadlines.int64s()
        cdef Py_ssize_t moved = 0
        cdef Py_ssize_t i
        cdef Node* node
        same_length(wanted, "handles", deadlines, "deadlines_ns")
        self.require_open()
        self.require_handles(wanted)
        self.require_deadlines(deadlines)
        self.reserve_moves(wanted.count, items, times)
        for i in range(wanted.count):
            if i + PREFETCH_AHEAD < wanted.count:
                prefetch(node_at(&self.engine.nodes, <uint32_t>items[i + PREFETCH_AHEAD]))
            node = node_of_handle(&self.engine.nodes, items[i])
            if node == NULL:
                continue
            if move_timer(&self.engine, node, <uint32_t>items[i], times[i]) < 0:
                raise MemoryError("no memory to move a timer that the batch names repeatedly")
            moved += 1
        return moved

    @cython.final
    cdef inline Node* find(self, int64_t handle) except? NULL:
        """The node of a handle, NULL when it is stale."""
        if handle_is_foreign(&self.engine.nodes, handle):
            raise ForeignHandle(f"handle {handle} was never issued by this wheel")
        return node_of_handle(&self.engine.nodes, handle)

    cdef int reserve_moves(
        self, Py_ssize_t count, const int64_t* handles, const int64_t* times
    ) except -1:
        """Make room for the timers that move to an earlier tick; the others need none."""
        cdef size_t earlier = 0
        cdef Py_ssize_t i
        cdef Node* node
        if pool_available(&self.engine.pool) >= chunks_for(count):
            return 0
        for i in range(count):
            if i + PREFETCH_AHEAD < count:
                prefetch(node_at(&self.engine.nodes, <uint32_t>handles[i + PREFETCH_AHEAD]))
            node = node_of_handle(&self.engine.nodes, handles[i])
            earlier += node != NULL and moves_earlier(&self.engine, node, times[i])
        if reserve_entries(&self.engine, earlier) < 0:
            raise MemoryError(f"no memory to move {earlier} timers")
        return 0

    cdef int require_handles(self, _Buffer handles) except -1:
        cdef const int64_t* items = handles.int64s()
        cdef Py_ssize_t i
        for i in range(handles.count):
            if handle_is_foreign(&self.engine.nodes, items[i]):
                raise ForeignHandle(
                    f"handle {items[i]} at position {i} was never issued by this wheel"
                )
        return 0


cdef class Wheel(HandleWheel):
    """Timers with 64-bit integer keys. Several may share a key."""

    cdef bint is_wheel      # a field of its own: no class can inherit from two kinds of wheel

    def __cinit__(self):
        self.key_words = 1

    def add(self, deadline_ns, key):
        """Add a timer; its handle."""
        cdef int64_t deadline = self.as_instant(deadline_ns, "deadline_ns")
        cdef int64_t number = as_int64(key, "key")
        cdef object handle
        self.require_open()
        self.reserve(1)
        handle = PyLong_FromLongLong(next_handle(&self.engine.nodes))
        key_at(&self.engine.nodes, add_timer(&self.engine, deadline))[0] = number
        return handle

    def add_many(self, deadlines_ns, keys):
        """Add a timer for each deadline and key of two buffers; their handles, as array('q')."""
        cdef _Buffer deadlines = int64_buffer(deadlines_ns, "deadlines_ns")
        cdef _Buffer numbers = int64_buffer(keys, "keys")
        cdef array.array handles
        same_length(deadlines, "deadlines_ns", numbers, "keys")
        handles = array.clone(INT64_TEMPLATE, deadlines.count, False)
        self.require_open()
        self.require_deadlines(deadlines)
        self.reserve(deadlines.count)
        add_int64_timers(
            &self.engine, deadlines.count, deadlines.int64s(), numbers.int64s(),
            <int64_t*>handles.data.as_longlongs,
        )
        return handles

    def advance(self, now_ns, limit=None):
        """Move time forward; the keys of what has expired, in order, at most `limit` of them.

        Late timers come first, then tick by tick. What a limit leaves behind comes at the next
        call. When `now_ns` is earlier than the wheel's time, nothing happens.
        """
        return self.expire_list(now_ns, limit)

    def advance_into(self, now_ns, keys):
        """Like `advance`, into a writable buffer whose length is the limit; how many expired."""
        cdef _Buffer target = int64_buffer(keys, "keys", PyBUF_WRITABLE)
        cdef int64_t now = self.as_instant(now_ns, "now_ns")
        cdef Py_ssize_t count
        self.require_open()
        count = self.expire(now, target.count)
        taken = self.expired_number()
        copy_int64_keys(&self.engine, count, target.int64s())
        forget_expired(&self.engine)
        return taken

    cdef list take_expired(self, Py_ssize_t count):
        return int64_keys(&self.engine, count)


cdef class ObjectWheel(HandleWheel):
    """Timers with any object as their payload."""

    # Found by node index, and so visible to the garbage collector.
    cdef list payloads

    def __cinit__(self):
        self.payloads = []

    @classmethod
    def __class_getitem__(cls, item, /):
        return GenericAlias(cls, item)

    def add(self, deadline_ns, payload):
        """Add a timer; its handle."""
        cdef int64_t deadline = self.as_instant(deadline_ns, "deadline_ns")
        cdef object handle
        self.require_open()
        self.reserve(1)
        self.reserve_payloads()
        handle = PyLong_FromLongLong(next_handle(&self.engine.nodes))
        self.payloads[add_timer(&self.engine, deadline)] = payload
        return handle

    def add_many(self, deadlines_ns, payloads):
        """Add a timer for each deadline of a buffer; their handles, as array('q')."""
        cdef _Buffer deadlines = int64_buffer(deadlines_ns, "deadlines_ns")
        cdef list given = list(payloads)
        cdef array.array handles
        cdef uint32_t index
        cdef Py_ssize_t i
        if len(given) != deadlines.count:
            raise ValueError(
                "deadlines_ns and payloads must have the same length, "
                f"and have {deadlines.count} and {len(given)}"
            )
        handles = array.clone(INT64_TEMPLATE, deadlines.count, False)
        self.require_open()
        self.require_deadlines(deadlines)
        self.reserve(deadlines.count)
        self.reserve_payloads()
        for i in range(deadlines.count):
            index = add_timer(&self.engine, deadlines.int64s()[i])
            self.payloads[index] = given[i]
            handles.data.as_longlongs[i] = handle_of(&self.engine.nodes, index)
        return handles

    def cancel(self, handle):
        """Cancel a timer and let its payload go; whether it was still waiting."""
        cdef int64_t wanted = as_handle(handle)
        cdef object _payload    # let go on return, when the wheel is whole again
        cdef Node* node
        self.require_open()
        node = self.find(wanted)
        if node == NULL:
            return False
        _payload = self.take_payload(<uint32_t>wanted)
        cancel_timer(&self.engine, node, <uint32_t>wanted)
        return True

    def cancel_many(self, handles):
        """Cancel a buffer of handles and let the payloads go; how many were still waiting."""
        cdef _Buffer wanted = int64_buffer(handles, "handles")
        cdef int64_t* items = wanted.int64s()
        cdef list payloads = [None] * wanted.count      # let go on return, likewise
        cdef Py_ssize_t cancelled = 0
        cdef Py_ssize_t i
        cdef Node* node
        self.require_open()
        self.require_handles(wanted)
        for i in range(wanted.count):
            node = node_of_handle(&self.engine.nodes, items[i])
            if node != NULL:
                payloads[i] = self.take_payload(<uint32_t>items[i])
                cancel_timer(&self.engine, node, <uint32_t>items[i])
                cancelled += 1
        return cancelled

    def advance(self, now_ns, limit=None):
        """Move time forward; the payloads of what has expired, in order, as Wheel.advance does."""
        return self.expire_list(now_ns, limit)

    def drain(self):
        """Take every timer out, due or not; pairs of deadline and payload, by deadline.

        Looks at each timer once, however far away it is, where `advance` would place the far
        ones again and again on the way.
        """
        cdef list pairs = []
        cdef int64_t deadline
        cdef uint32_t index
        self.require_open()
        self.state = BUSY       # making a list may run finalizers
        try:
            for index in range(self.engine.nodes.used):
                deadline = node_at(&self.engine.nodes, index).deadline_ns
                if deadline >= 0:
                    pairs.append((deadline, self.payloads[index]))
            pairs.sort(key=itemgetter(0))
        finally:
            self.state = OPEN
        self.drop_all()
        return pairs

    cdef int reserve_payloads(self) except -1:
        cdef Py_ssize_t missing = nodes_capacity(&self.engine.nodes) - len(self.payloads)
        if missing > 0:
            self.state = BUSY       # making a list may run finalizers
            try:
                self.payloads.extend([None] * missing)
            finally:
                self.state = OPEN
        return 0

    cdef object take_payload(self, uint32_t index):
        cdef object payload = self.payloads[index]
        self.payloads[index] = None
        return payload

    cdef list take_expired(self, Py_ssize_t count):
        cdef list taken = PyList_New(count)
        cdef object payload
        cdef Py_ssize_t i
        for i in range(count):
            payload = self.take_payload(self.engine.expired[i])
            Py_INCREF(payload)
            PyList_SET_ITEM(taken, i, payload)
        return taken

    cdef object drop_all(self):
        cdef list payloads = self.payloads
        self.payloads = []
        engine_clear(&self.engine)
        return payloads
