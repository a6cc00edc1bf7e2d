# BaseWheel: what all wheels share.


cdef class BaseWheel:
    """What all wheels share: time, counting, and an orderly end.

    now_ns: the time to begin with. tick_shift: a tick is 2**tick_shift nanoseconds, and timers
    expire at most one tick late; the horizons of the levels scale with it. capacity: how many
    timers to have memory ready for. exact_order: timers that expire in the same tick come in
    the order of their deadlines, rather than in the order in which they were added.
    """

    cdef Engine engine
    cdef State state
    cdef int key_words

    def __init__(self, now_ns=0, *, tick_shift=20, capacity=0, exact_order=False):
        global wheels_made
        cdef int64_t now = as_int64(now_ns, "now_ns")
        cdef int64_t shift = as_int64(tick_shift, "tick_shift")
        cdef int64_t timers = as_int64(capacity, "capacity")
        cdef bint is_exact = bool(exact_order)
        if self.state != CLOSED or self.engine.tick_shift != 0:
            raise WheelError("a wheel is initialised once; make another one")
        if not TICK_SHIFT_LEAST <= shift <= TICK_SHIFT_MOST:
            raise ValueError(
                f"tick_shift must be {TICK_SHIFT_LEAST} to {TICK_SHIFT_MOST}, not {tick_shift}"
            )
        if not 0 <= timers < 1 << 32:
            raise ValueError(f"capacity must be 0 to {(1 << 32) - 1}, not {capacity}")
        if not 0 <= now <= INT64_MAX - (<int64_t>1 << shift):
            raise DeadlineOutOfRange(f"now_ns must not be negative or near 2**63, as {now_ns} is")
        engine_init(&self.engine, now, <int>shift, is_exact)
        wheels_made += 1
        # Wheels start at generations far apart, so that one's handles look wrong to another.
        nodes_init(
            &self.engine.nodes,
            (wheels_made * <uint32_t>0x9E3779B1) & 0x3FFFFFFF,
            self.key_words,
            self.is_indexed(),
        )
        self.engine.nodes.hash_seed = HASH_SEED
        self.state = OPEN
        if timers > 0:
            self.reserve(timers)
            touch_reserved(&self.engine)

    def __dealloc__(self):
        engine_release(&self.engine)

    def __len__(self):
        return self.engine.timers

    def __enter__(self):
        self.require_open()
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        if self.state == CLOSED:
            return f"<{type(self).__name__} closed>"
        return f"<{type(self).__name__} timers={self.engine.timers} now_ns={self.engine.now_ns}>"

    def __reduce__(self):
        raise TypeError("a wheel cannot be copied or pickled: its handles hold in one process only")

    @property
    def now_ns(self):
        """The latest time that the wheel was advanced to."""
        return self.engine.now_ns

    @property
    def tick_ns(self):
        """The length of a tick: the most by which a timer expires late."""
        return <int64_t>1 << self.engine.tick_shift

    @property
    def max_deadline_ns(self):
        """The latest deadline that the wheel accepts."""
        return self.latest_ns()

    @property
    def closed(self):
        return self.state == CLOSED

    def next_expiry(self):
        """The time to call `advance` next, or None without timers.

        Never later than the tick at which the earliest timer expires. It may be earlier when
        that timer is among thousands: an advance by then spreads the work that they make.
        """
        self.require_open()
        cdef int64_t expiry_ns = next_expiry_ns(&self.engine)
        return None if expiry_ns < 0 else expiry_ns

    def counts(self, from_ns, to_ns, step_ns):
        """How many timers are due in each step of [from_ns, to_ns); the last may be cut short.

        Looks at every timer, some nanoseconds each.
        """
        cdef int64_t start = as_int64(from_ns, "from_ns")
        cdef int64_t end = as_int64(to_ns, "to_ns")
        cdef int64_t step = as_int64(step_ns, "step_ns")
        cdef int64_t steps
        cdef uint64_t* due
        self.require_open()
        if start < 0 or step <= 0:
            raise ValueError("from_ns must not be negative, and step_ns must be positive")
        if end <= start:
            return []
        steps = (end - start - 1) // step + 1
        if steps > STEPS_MOST:
            raise ValueError(f"that makes {steps} steps; at most {STEPS_MOST} are counted at once")
        due = <uint64_t*>PyMem_RawCalloc(steps, sizeof(uint64_t))
        if due == NULL:
            raise MemoryError
        try:
            count_due(&self.engine, start, end, step, due)
            return [due[i] for i in range(steps)]
        finally:
            PyMem_RawFree(due)

    def stats(self):
        """What the wheel holds and what it has done, as WheelStats."""
        self.require_open()
        return WheelStats(
            timers=self.engine.timers,
            entries=self.engine.timers + self.engine.stale,
            stale=self.engine.stale,
            capacity=nodes_capacity(&self.engine.nodes),
            bytes=self.allocated(),
            fired=self.engine.fired,
            cancelled=self.engine.cancelled,
            replaced=self.engine.replaced,
            swept=self.engine.swept,
        )

    def check(self):
        """Verify every invariant; raise WheelCorrupt, naming the first that does not hold."""
        self.require_open()
        cdef const char* problem = self.find_problem()
        if problem == no_memory_to_check():
            raise MemoryError((<bytes>problem).decode())
        if problem != NULL:
            raise WheelCorrupt((<bytes>problem).decode())

    def clear(self):
        """Cancel every timer."""
        self.require_open()
        self.drop_all()

    def close(self):
        """Cancel every timer and give the memory back; what follows raises WheelClosed."""
        cdef object _payloads   # let go on return, when the wheel is closed
        if self.state == CLOSED:
            return
        self.require_open()
        _payloads = self.drop_all()
        self.state = CLOSED
        engine_release(&self.engine)
        engine_init(&self.engine, self.engine.now_ns, self.engine.tick_shift, False)

    @cython.final
    cdef inline int require_open(self) except -1:
        if self.state == BUSY:
            raise WheelBusy
        if self.state == CLOSED:
            raise WheelClosed
        return 0

    @cython.final
    cdef inline int64_t latest_ns(self) noexcept:
        return INT64_MAX - (<int64_t>1 << self.engine.tick_shift)

    @cython.final
    cdef inline int64_t as_instant(self, object value, str name) except -1:
        cdef int overflow = 0
        cdef int64_t instant
        if not PyLong_Check(value):
            value = index_of(value, name)
        instant = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow != 0 or not 0 <= instant <= self.latest_ns():
            given = "a number of more than 64 bits" if overflow != 0 else value
            raise DeadlineOutOfRange(
                f"{name} must lie between 0 and {self.latest_ns()}, and {given} does not"
            )
        return instant

    cdef int require_deadlines(self, _Buffer deadlines) except -1:
        cdef const int64_t* items = deadlines.int64s()
        cdef int64_t latest = self.latest_ns()
        cdef bint outside = False
        cdef Py_ssize_t i
        for i in range(deadlines.count):
            outside |= (items[i] < 0) | (items[i] > latest)
        if outside:
            for i in range(deadlines.count):
                if not 0 <= items[i] <= latest:
                    raise DeadlineOutOfRange(
                        f"deadlines must lie between 0 and {latest}, "
                        f"and {items[i]} at position {i} does not"
                    )
        return 0

    cdef int reserve(self, size_t timers) except -1:
        if reserve_timers(&self.engine, timers) < 0:
            raise MemoryError(f"no memory for {timers} more timers")
        return 0

    cdef Py_ssize_t expire(self, int64_t now_ns, size_t limit) except -1:
        """Collect the expired; their number."""
        if advance_to(&self.engine, now_ns, limit) == NO_MEMORY:
            if self.engine.expired_count == 0:
                raise MemoryError("no memory to advance the wheel")
        return self.engine.expired_count

    cdef object expired_number(self):
        """How many expired, as an answer; when it cannot be made, they expire the next time."""
        try:
            return PyLong_FromLongLong(self.engine.expired_count)
        except MemoryError:
            take_back(&self.engine)
            raise

    cdef list expire_list(self, object now_ns, object limit):
        """The expired as a list of what `take_expired` makes of them."""
        cdef int64_t now = self.as_instant(now_ns, "now_ns")
        cdef int64_t most = INT64_MAX if limit is None else as_int64(limit, "limit")
        cdef Py_ssize_t count
        cdef list taken
        self.require_open()
        if most < 0:
            raise ValueError(f"limit must not be negative, as {limit} is")
        count = self.expire(now, <size_t>most)
        self.state = BUSY       # making objects may run finalizers
        try:
            taken = self.take_expired(count)
        except BaseException:
            take_back(&self.engine)
            raise
        finally:
            self.state = OPEN
        self.forget_keys()
        forget_expired(&self.engine)
        return taken

    cdef list take_expired(self, Py_ssize_t count):
        raise NotImplementedError

    cdef void forget_keys(self) noexcept:
        """The expired timers are gone from the index as well."""

    cdef bint is_indexed(self) noexcept:
        return False

    cdef const char* find_problem(self) noexcept:
        return check_engine(&self.engine)

    cdef object drop_all(self):
        """Cancel every timer; what the caller should hold until the wheel is whole again."""
        engine_clear(&self.engine)
        return None

    cdef size_t allocated(self) noexcept:
        return (
            sizeof(Engine)
            + self.engine.nodes.segment_count * self.engine.nodes.segment_bytes
            + <size_t>self.engine.pool.block_count * POOL_BLOCK * sizeof(Chunk)
            + self.engine.expired_capacity * sizeof(uint32_t)
        )
