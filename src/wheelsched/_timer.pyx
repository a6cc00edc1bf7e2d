"""Timers with callbacks, and the portion of them that is being called.

In C because a hot second goes through here callback by callback. The timers of one tick lie all
over memory, since they were added at different times; reading a few of them ahead of the call
hides most of that, and halves what a callback costs.

Invariant: a timer waits in the wheel, or is due (in a portion, not yet called), or is done (its
`callback` is None). A portion calls each of its timers at most once, in order, and goes on where
it stopped if KeyboardInterrupt or SystemExit came out of one.
"""

cimport cython
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cdef extern from *:
    void prefetch "__builtin_prefetch" (const void* address) noexcept nogil

cdef enum:
    TIMER_AHEAD = 8
    ARGUMENTS_AHEAD = 4     # later than the timer itself, which says where they are
    COLLECTOR_HEADER = 16   # lies before each object, and is written when the object dies


@cython.final
cdef class Timer:
    """A callback that waits for its time. Once called or cancelled, its `callback` is None.

    `handle` and `moved` are the owner's: where it waits in the wheel, and whether it went back
    there while it was due.
    """

    cdef readonly object owner
    cdef public object callback
    cdef public tuple args
    cdef readonly object context
    cdef public int64_t when_ns
    cdef public int64_t handle
    cdef public bint moved

    def __init__(self, owner, callback, tuple args not None, context):
        if not callable(callback):
            raise TypeError(f"a callback must be callable, not {callback!r}")
        self.owner = owner
        self.callback = callback
        self.args = args
        self.context = context

    def __repr__(self):
        return f"<Timer {self.callback!r} at {self.when_ns} ns>"

    def cancel(self):
        """Return True when the callback will now never be called, False when it was too late.

        Allowed on a closed wheel, so that a `finally` need not ask.
        """
        return self.owner.cancel(self)

    def reschedule(self, when_ns):
        """Call back at `when_ns` instead. False when it was called or cancelled already."""
        return self.owner.reschedule(self, when_ns)

    def reschedule_later(self, delay_s):
        """Call back in `delay_s` from now instead. False as in `reschedule`."""
        return self.owner.reschedule(self, self.owner.after(delay_s))


@cython.final
cdef class Portion:
    """Timers that have left the wheel together."""

    cdef list timers
    cdef Py_ssize_t next

    def __init__(self, list timers not None):
        self.timers = timers

    def __len__(self):
        """How many timers it has not come to yet."""
        return len(self.timers) - self.next

    def call(self, report):
        """Call them all. An exception goes to `report(timer, callback, exception)`."""
        cdef Timer timer
        cdef Py_ssize_t i
        for i in range(self.next, min(self.next + TIMER_AHEAD, len(self.timers))):
            read_ahead(PyList_GET_ITEM(self.timers, i))
        while self.next < len(self.timers):
            self.read_ahead()
            timer = self.timers[self.next]
            self.next += 1
            callback = timer.callback
            if timer.moved:
                timer.moved = False
            elif callback is not None:
                timer.callback = None
                try:
                    if timer.context is None:
                        callback(*timer.args)
                    else:
                        timer.context.run(callback, *timer.args)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # as asyncio's own handles do
                    report(timer, callback, error)

    def pending(self):
        """The timers it will still call."""
        cdef Timer timer
        return [
            timer for timer in self.timers[self.next:]
            if timer.callback is not None and not timer.moved
        ]

    def stop(self):
        """Call none of the others."""
        self.next = len(self.timers)

    cdef inline void read_ahead(self) noexcept:
        cdef Py_ssize_t count = len(self.timers)
        cdef object near
        if self.next + TIMER_AHEAD < count:
            read_ahead(PyList_GET_ITEM(self.timers, self.next + TIMER_AHEAD))
        if self.next + ARGUMENTS_AHEAD < count:
            near = <object> PyList_GET_ITEM(self.timers, self.next + ARGUMENTS_AHEAD)
            if isinstance(near, Timer):
                read_ahead(<PyObject*> (<Timer> near).args)


cdef inline void read_ahead(PyObject* target) noexcept:
    prefetch(<char*> target - COLLECTOR_HEADER)
    prefetch(<char*> target + sizeof(PyObject) + COLLECTOR_HEADER)
