# KeyWheel, KeyedWheel, UUIDWheel: timers that are known by their key, one for each.


cdef class KeyWheel(BaseWheel):
    """Timers that are known by their key, one for each.

    The index keeps no Python objects: 44 bytes a timer in all with 64-bit keys, 52 with 128.
    """

    cdef Index index

    def __dealloc__(self):
        index_clear(&self.index)

    def __contains__(self, key, /):
        cdef int64_t words[2]
        self.read_key(key, words)
        self.require_open()
        return index_find(&self.index, &self.engine.nodes, words) != NOT_FOUND

    def upsert(self, key, deadline_ns):
        """Give the timer of this key that deadline; whether it had to be added."""
        cdef int64_t words[2]
        cdef int64_t deadline = self.as_instant(deadline_ns, "deadline_ns")
        self.read_key(key, words)
        self.require_open()
        self.reserve(1)
        return self.upsert_one(words, deadline) == 1

    def discard(self, key):
        """Cancel the timer of this key; whether there was one."""
        cdef int64_t words[2]
        self.read_key(key, words)
        self.require_open()
        return self.discard_one(words)

    def deadline(self, key):
        """The deadline of this key's timer, or None without one."""
        cdef int64_t words[2]
        cdef uint32_t index
        self.read_key(key, words)
        self.require_open()
        index = index_find(&self.index, &self.engine.nodes, words)
        return None if index == NOT_FOUND else node_at(&self.engine.nodes, index).deadline_ns

    def upsert_many(self, keys, deadlines_ns):
        """Upsert each key and deadline of two buffers; how many had to be added."""
        cdef _Buffer names = self.key_buffer(keys, 0)
        cdef _Buffer deadlines = int64_buffer(deadlines_ns, "deadlines_ns")
        cdef int64_t words[2]
        cdef Py_ssize_t added = 0
        cdef Py_ssize_t i
        same_length(names, "keys", deadlines, "deadlines_ns")
        self.require_open()
        self.require_deadlines(deadlines)
        self.reserve_upserts(names, deadlines.int64s())
        for i in range(names.count):
            self.prefetch_key(names, i)
            self.copy_key(names, i, words)
            added += self.upsert_one(words, deadlines.int64s()[i])
        return added

    def discard_many(self, keys):
        """Discard each key of a buffer; how many had a timer."""
        cdef _Buffer names = self.key_buffer(keys, 0)
        cdef int64_t words[2]
        cdef Py_ssize_t discarded = 0
        cdef Py_ssize_t i
        self.require_open()
        for i in range(names.count):
            self.prefetch_key(names, i)
            self.copy_key(names, i, words)
            discarded += self.discard_one(words)
        return discarded

    def advance(self, now_ns, limit=None):
        """Move time forward; the keys of what has expired, in order, as Wheel.advance does."""
        return self.expire_list(now_ns, limit)

    def advance_into(self, now_ns, keys, deadlines_ns=None):
        """Like `advance`, into a writable buffer that has room for `limit` keys; how many.

        Their deadlines go to a second one, if it is given.
        """
        cdef _Buffer target = self.key_buffer(keys, PyBUF_WRITABLE)
        cdef _Buffer deadlines = None
        cdef size_t key_bytes = 8 * self.key_words
        cdef int64_t now = self.as_instant(now_ns, "now_ns")
        cdef Py_ssize_t count, i
        if deadlines_ns is not None:
            deadlines = int64_buffer(deadlines_ns, "deadlines_ns", PyBUF_WRITABLE)
            same_length(target, "keys", deadlines, "deadlines_ns")
        self.require_open()
        count = self.expire(now, target.count)
        taken = self.expired_number()
        for i in range(count):
            if i + PREFETCH_AHEAD < count:
                prefetch(key_at(&self.engine.nodes, self.engine.expired[i + PREFETCH_AHEAD]))
            memcpy(
                target.bytes() + i * key_bytes,
                key_at(&self.engine.nodes, self.engine.expired[i]),
                key_bytes,
            )
            if deadlines is not None:
                deadlines.int64s()[i] = expired_ns(&self.engine.nodes, self.engine.expired[i])
        self.forget_keys()
        forget_expired(&self.engine)
        return taken

    cdef int read_key(self, object key, int64_t* words) except -1:
        raise NotImplementedError

    cdef _Buffer key_buffer(self, object keys, int flags):
        raise NotImplementedError

    cdef void copy_key(self, _Buffer keys, Py_ssize_t i, int64_t* words) noexcept:
        memcpy(words, keys.bytes() + i * 8 * self.key_words, 8 * self.key_words)

    cdef void prefetch_key(self, _Buffer keys, Py_ssize_t i) noexcept:
        """Have the bucket of a key further ahead fetched, and the timer of one less far."""
        cdef int64_t words[2]
        if i + 2 * PREFETCH_AHEAD < keys.count:
            self.copy_key(keys, i + 2 * PREFETCH_AHEAD, words)
            prefetch_bucket(&self.index, &self.engine.nodes, words)
        if i + PREFETCH_AHEAD < keys.count:
            self.copy_key(keys, i + PREFETCH_AHEAD, words)
            prefetch_member(&self.index, &self.engine.nodes, words)

    cdef int upsert_one(self, const int64_t* words, int64_t deadline_ns) except -1:
        """1 when the key is new, 0 when its timer was moved."""
        cdef uint32_t index = index_find(&self.index, &self.engine.nodes, words)
        if index == NOT_FOUND:
            index = add_timer(&self.engine, deadline_ns)
            memcpy(key_at(&self.engine.nodes, index), words, 8 * self.key_words)
            index_insert(&self.index, &self.engine.nodes, index)
            return 1
        if move_timer(
            &self.engine, node_at(&self.engine.nodes, index), index, deadline_ns
        ) < 0:
            raise MemoryError("no memory to move a timer that the batch names repeatedly")
        return 0

    cdef bint discard_one(self, const int64_t* words) noexcept:
        cdef uint32_t index = index_find(&self.index, &self.engine.nodes, words)
        if index == NOT_FOUND:
            return False
        index_remove(&self.index, &self.engine.nodes, index)
        cancel_timer(&self.engine, node_at(&self.engine.nodes, index), index)
        return True

    cdef int reserve_upserts(self, _Buffer keys, const int64_t* times) except -1:
        """Make room for the keys that are new and the timers that move to an earlier tick."""
        cdef int64_t words[2]
        cdef size_t added = 0
        cdef size_t earlier = 0
        cdef uint32_t index
        cdef Py_ssize_t i
        for i in range(keys.count):
            self.prefetch_key(keys, i)
            self.copy_key(keys, i, words)
            index = index_find(&self.index, &self.engine.nodes, words)
            if index == NOT_FOUND:
                added += 1
            else:
                earlier += moves_earlier(
                    &self.engine, node_at(&self.engine.nodes, index), times[i]
                )
        self.reserve(added)
        if reserve_entries(&self.engine, added + earlier) < 0:
            raise MemoryError(f"no memory to move {earlier} timers")
        return 0

    cdef int reserve(self, size_t timers) except -1:
        if index_reserve(&self.index, timers) < 0:
            raise MemoryError(f"no memory for {timers} more keys")
        return BaseWheel.reserve(self, timers)

    cdef void forget_keys(self) noexcept:
        cdef size_t i
        for i in range(self.engine.expired_count):
            index_remove(&self.index, &self.engine.nodes, self.engine.expired[i])

    cdef bint is_indexed(self) noexcept:
        return True

    cdef const char* find_problem(self) noexcept:
        cdef const char* problem = check_engine(&self.engine)
        return problem if problem != NULL else check_index(&self.engine, &self.index)

    cdef object drop_all(self):
        engine_clear(&self.engine)
        index_clear(&self.index)
        return None

    cdef size_t allocated(self) noexcept:
        return (
            BaseWheel.allocated(self)
            + self.index.segment_count * BUCKETS_FIRST * sizeof(uint32_t)
        )


cdef class KeyedWheel(KeyWheel):
    """One timer for each 64-bit integer key."""

    cdef bint is_keyed_wheel    # a field of its own, as in Wheel

    def __cinit__(self):
        self.key_words = 1

    cdef int read_key(self, object key, int64_t* words) except -1:
        words[0] = as_int64(key, "key")
        return 0

    cdef _Buffer key_buffer(self, object keys, int flags):
        return int64_buffer(keys, "keys", flags)

    cdef list take_expired(self, Py_ssize_t count):
        return int64_keys(&self.engine, count)


cdef class UUIDWheel(KeyWheel):
    """One timer for each 128-bit key: uuid.UUID or 16 bytes go in, 16 bytes come out.

    Buffers of keys are any that hold 16 bytes for each.
    """

    cdef bint is_uuid_wheel     # a field of its own, as in Wheel

    def __cinit__(self):
        self.key_words = 2

    cdef int read_key(self, object key, int64_t* words) except -1:
        cdef object raw = key if isinstance(key, bytes) else getattr(key, "bytes", None)
        if not isinstance(raw, bytes):
            raise TypeError(f"key must be a uuid.UUID or 16 bytes, not {type(key).__name__}")
        if len(<bytes>raw) != 16:
            raise ValueError(f"key must have 16 bytes, and has {len(<bytes>raw)}")
        memcpy(words, <char*>(<bytes>raw), 16)
        return 0

    cdef _Buffer key_buffer(self, object keys, int flags):
        return uuid_buffer(keys, "keys", flags)

    cdef list take_expired(self, Py_ssize_t count):
        cdef list keys = PyList_New(count)
        cdef object key
        cdef Py_ssize_t i
        for i in range(count):
            key = PyBytes_FromStringAndSize(
                <char*>key_at(&self.engine.nodes, self.engine.expired[i]), 16
            )
            Py_INCREF(key)
            PyList_SET_ITEM(keys, i, key)
        return keys
