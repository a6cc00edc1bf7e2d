"""A three-level timing wheel: integers in, integers out, no clock of its own.

    late ──► │                          now
    fine     │▌▌▌▌▌▌▌▌ … 2 × 256 ticks of 1 ms
    coarse   │████████ … 4,096 blocks of 256 ticks     up to 18 minutes
    far      │████████ … 64 spans of 1,024 blocks      up to 5 hours, and beyond

A timer is a deadline in nanoseconds and a key. It waits in the slot that its deadline
belongs to and is pulled into a finer one as its time comes near; `advance` is told the time
and gives the keys that have expired. Nothing is searched and, unless asked for, nothing is
sorted: adding, cancelling, moving and expiring a timer takes as many steps among ten as among
ten million.

The engine (`_engine/*.pxd`) works on C structs alone. The classes (`_classes/*.pxi`, included
below) are what Python sees of it:

    BaseWheel        what all wheels share
      HandleWheel    timers are known by the handle that `add` returned
        Wheel        … with 64-bit integer keys
        ObjectWheel  … with any object in place of the key
      KeyWheel       timers are known by their key, one for each
        KeyedWheel   … with 64-bit integer keys
        UUIDWheel    … with 128-bit keys

An operation either happens or raises and changes nothing. The interpreter's lock makes each
one atomic; the few that may run foreign code in between (a finalizer, say) refuse to be
entered again.
"""

from collections import namedtuple
from operator import index as operator_index, itemgetter
from types import GenericAlias

from wheelsched.errors import (
    DeadlineOutOfRange, ForeignHandle, WheelBusy, WheelClosed, WheelCorrupt, WheelError,
)

cimport cython
from cpython cimport array
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_Check, PyLong_FromLongLong
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

import array

from ._engine.advance cimport (
    NO_MEMORY, PREFETCH_AHEAD, advance_to, forget_expired, take_back,
)
from ._engine.check cimport check_engine, check_index, no_memory_to_check
from ._engine.expiry cimport next_expiry_ns
from ._engine.index cimport (
    NOT_FOUND, BUCKETS_FIRST, Index, index_clear, index_find, index_insert, index_remove,
    index_reserve, prefetch_bucket, prefetch_member,
)
from ._engine.levels cimport Engine, chunks_for, prefetch_tail
from ._engine.nodes cimport (
    Node, expired_ns, handle_is_foreign, handle_of, key_at, next_handle, node_at, node_of_handle,
    nodes_capacity, nodes_init,
)
from ._engine.slots cimport POOL_BLOCK, Chunk, pool_available, prefetch
from ._engine.timers cimport (
    add_timer, cancel_timer, count_due, engine_clear, engine_init, engine_release,
    move_timer, moves_earlier, reserve_entries, reserve_timers, touch_reserved,
)

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1

cdef enum:
    TICK_SHIFT_LEAST = 10
    TICK_SHIFT_MOST = 40
    STEPS_MOST = 1 << 24

cdef enum State:
    CLOSED = 0      # also what a subclass finds that never called __init__
    OPEN = 1
    BUSY = 2

cdef uint32_t wheels_made = 0
cdef uint64_t HASH_SEED = <uint64_t>(<int64_t>hash("wheelsched"))
cdef frozenset UUID_FORMATS = frozenset(["B", "b", "c", "16s", "16x"])
cdef array.array INT64_TEMPLATE = array.array("q")

WheelStats = namedtuple(
    "WheelStats",
    "timers entries stale capacity bytes fired cancelled replaced swept",
)
WheelStats.__doc__ = """What a wheel holds and what it has done.

timers: waiting; entries: written in slots for them, with the stale ones among them;
capacity: timers that fit before more memory is asked for; bytes: asked for so far;
fired, cancelled: timers since the beginning; replaced: entries written again by cascades and
moved deadlines; swept: stale entries that were removed ahead of their time.
"""

include "_classes/arguments.pxi"
include "_classes/base.pxi"
include "_classes/by_handle.pxi"
include "_classes/by_key.pxi"
