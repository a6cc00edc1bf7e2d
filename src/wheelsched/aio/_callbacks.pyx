"""The callbacks of an AsyncWheel: timers, and the portion that is being called.

It is compiled, because every callback of a hot second passes through here. The timers of one tick
are scattered in memory, because they were added at different times. So a few of them are prefetched
before the call. Together this saves about 40 % of the cost of a callback.

Invariant: a timer is in the wheel, or due (it has left the wheel with its portion and is not called
yet), or done (its `callback` is None). A portion is called to its end before the next one leaves
the wheel, whatever its callbacks raise, cancel or reschedule.
"""

from asyncio import get_running_loop
from operator import attrgetter

from wheelsched.errors import WrongLoop

cimport cython
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cdef extern from *:
    void prefetch "__builtin_prefetch" (const void* address) noexcept nogil

cdef enum:
    TIMER_AHEAD = 8
    ARGUMENTS_AHEAD = 4     # later than the timer, which points to them
    COLLECTOR_HEADER = 16   # precedes each object, and is written when the object is freed


cpdef int check_loop(loop) except -1:
    """Raise WrongLoop unless `loop` is running in this thread. This also excludes other threads."""
    try:
        running = get_running_loop()
    except RuntimeError:
        raise WrongLoop from None
    if running is not loop:
        raise WrongLoop
    return 0


cdef class Callbacks


@cython.final
cdef class Timer:
    """A pending callback. After it was called or cancelled, its `callback` is None."""

    cdef readonly object callback
    cdef readonly tuple args
    cdef readonly object context
    cdef readonly int64_t when_ns
    cdef Callbacks owner
    cdef int64_t handle     # in the wheel, whose payload is the timer itself
    cdef bint moved         # it was due and was moved back into the wheel

    def __cinit__(self, Callbacks owner not None, callback, tuple args not None, context):
        if not callable(callback):
            raise TypeError(f"a callback must be callable, not {callback!r}")
        self.owner = owner
        self.callback = callback
        self.args = args
        self.context = context

    def __repr__(self):
        return f"<Timer {self.callback!r} at {self.when_ns} ns>"

    def cancel(self):
        """Cancel the callback. Returns False if it was already called or cancelled.

        Allowed on a closed wheel, so that a `finally` block can always call it.
        """
        return self.owner.cancel(self)

    def reschedule(self, when_ns):
        """Move the callback to `when_ns`. Returns False if it was already called or cancelled."""
        return self.owner.reschedule(self, when_ns)

    def reschedule_later(self, delay_s):
        """Move the callback to `delay_s` from now. See `reschedule`."""
        return self.owner.reschedule(self, self.owner.after(delay_s))


@cython.final
cdef class Callbacks:
    """The wheel of callbacks. It calls `expect(when_ns)` to be woken.

    `after(delay_s)` returns the instant of a delay. `report(timer, callback, error)` receives the
    exception of a callback.
    """

    cdef object loop
    cdef object wheel
    cdef object after
    cdef object expect
    cdef object report
    cdef list portion
    cdef Py_ssize_t called  # how many of the portion

    def __init__(self, loop, wheel, *, after, expect, report):
        self.loop = loop
        self.wheel = wheel
        self.after = after
        self.expect = expect
        self.report = report
        self.portion = []
        self.called = 0

    def __len__(self):
        return len(self.wheel) + len(self.due())

    def stats(self):
        return self.wheel.stats()

    def add(self, when_ns, callback, tuple args not None, context):
        """Call `callback(*args)` at `when_ns`, in `context` if given. Returns its timer."""
        cdef Timer timer = Timer(self, callback, args, context)
        check_loop(self.loop)
        timer.handle = self.wheel.add(when_ns, timer)
        timer.when_ns = when_ns
        self.expect(when_ns)
        return timer

    def next_expiry(self):
        """When the next callback is due, or None."""
        # A portion is left over only if a callback raised KeyboardInterrupt or SystemExit.
        if self.called < len(self.portion):
            return self.wheel.now_ns
        return self.wheel.next_expiry()

    def call_due(self, now_ns, limit):
        """Call one portion of due callbacks, at most `limit`. Exceptions go to `report`."""
        if self.called == len(self.portion):
            self.portion = self.wheel.advance(now_ns, limit)
            self.called = 0
            self.read_first_ahead()
        while self.called < len(self.portion):
            self.read_ahead()
            self.called += 1
            self.call(self.portion[self.called - 1])
        self.portion = []
        self.called = 0

    def close(self):
        """Close the wheel, and return the pending timers, ordered by time."""
        pending = self.due() + [timer for _, timer in self.wheel.drain()]
        pending.sort(key=attrgetter("when_ns"))
        self.called = len(self.portion)
        self.wheel.close()
        return pending

    cdef bint cancel(self, Timer timer) except -1:
        check_loop(self.loop)
        if timer.callback is None or self.wheel.closed:
            return False
        self.wheel.cancel(timer.handle)
        timer.callback = None
        timer.args = ()
        return True

    cdef bint reschedule(self, Timer timer, when_ns) except -1:
        check_loop(self.loop)
        if timer.callback is None:
            return False
        if not self.wheel.reschedule(timer.handle, when_ns):
            # It is due, and an earlier callback of its portion moves it back into the wheel.
            timer.handle = self.wheel.add(when_ns, timer)
            timer.moved = True
        timer.when_ns = when_ns
        self.expect(when_ns)
        return True

    cdef list due(self):
        cdef Timer timer
        return [
            timer for timer in self.portion[self.called:]
            if timer.callback is not None and not timer.moved
        ]

    cdef int call(self, Timer timer) except -1:
        callback = timer.callback
        args = timer.args
        if timer.moved:
            timer.moved = False
        elif callback is not None:
            timer.callback = None
            timer.args = ()
            try:
                if timer.context is None:
                    callback(*args)
                else:
                    timer.context.run(callback, *args)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # like asyncio's own handles
                self.report(timer, callback, error)
        return 0

    cdef void read_first_ahead(self) noexcept:
        cdef Py_ssize_t i
        for i in range(min(TIMER_AHEAD, len(self.portion))):
            read_object_ahead(PyList_GET_ITEM(self.portion, i))

    cdef inline void read_ahead(self) noexcept:
        cdef Py_ssize_t count = len(self.portion)
        cdef Timer near  # this wheel contains only timers
        if self.called + TIMER_AHEAD < count:
            read_object_ahead(PyList_GET_ITEM(self.portion, self.called + TIMER_AHEAD))
        if self.called + ARGUMENTS_AHEAD < count:
            near = <Timer> PyList_GET_ITEM(self.portion, self.called + ARGUMENTS_AHEAD)
            read_object_ahead(<PyObject*> near.args)


cdef inline void read_object_ahead(PyObject* target) noexcept:
    prefetch(<char*> target - COLLECTOR_HEADER)
    prefetch(<char*> target + sizeof(PyObject) + COLLECTOR_HEADER)
