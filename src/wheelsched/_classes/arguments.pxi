# Arguments: integers and buffers from Python, checked on the way in.


cdef inline int64_t as_int64(object value, str name) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_Check(value):
        value = index_of(value, name)
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow != 0:
        raise OverflowError(f"{name} must fit in 64 bits")
    return number


cdef inline int64_t as_handle(object value) except? -1:
    cdef int overflow = 0
    cdef int64_t handle
    if not PyLong_Check(value):
        value = index_of(value, "handle")
    handle = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow != 0:
        raise ForeignHandle("a handle fits in 64 bits: this one was never issued by any wheel")
    return handle


cdef object index_of(object value, str name):
    try:
        return operator_index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None


@cython.final
cdef class _Buffer:
    """A contiguous buffer of somebody else's, held until this object goes."""

    cdef Py_buffer view
    cdef Py_ssize_t count

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef int64_t* int64s(self) noexcept:
        return <int64_t*>self.view.buf

    cdef char* bytes(self) noexcept:
        return <char*>self.view.buf


cdef _Buffer buffer_of(object source, str name, int flags):
    cdef _Buffer buffer = _Buffer.__new__(_Buffer)
    if not PyObject_CheckBuffer(source):
        raise TypeError(
            f"{name} must be a buffer, such as array('q') or a numpy int64 array, "
            f"not {type(source).__name__}"
        )
    try:
        PyObject_GetBuffer(source, &buffer.view, PyBUF_ND | PyBUF_FORMAT | flags)
    except (BufferError, ValueError) as error:
        wanted = "writable and contiguous" if flags else "contiguous"
        raise BufferError(f"{name} must be {wanted}: {error}") from None
    return buffer


cdef bint is_int64(Py_buffer* view) noexcept:
    cdef const char* code = view.format
    if code == NULL or view.itemsize != 8:
        return False
    if code[0] in b"@=<":
        code += 1
    return code[0] in b"qln" and code[1] == 0


cdef _Buffer int64_buffer(object source, str name, int flags=0):
    cdef _Buffer buffer = buffer_of(source, name, flags)
    if buffer.view.ndim != 1 or not is_int64(&buffer.view):
        kind = "" if buffer.view.format == NULL else (<bytes>buffer.view.format).decode()
        raise TypeError(
            f"{name} must hold signed 64-bit integers in one dimension, such as array('q') or "
            f"numpy int64; this has {buffer.view.ndim} of format {kind!r}"
        )
    if buffer.view.len != 0 and <size_t>buffer.view.buf % 8 != 0:
        raise BufferError(f"{name} must begin at a multiple of 8 bytes in memory")
    buffer.count = buffer.view.len // 8
    return buffer


cdef _Buffer uuid_buffer(object source, str name, int flags=0):
    cdef _Buffer buffer = buffer_of(source, name, flags)
    kind = "B" if buffer.view.format == NULL else (<bytes>buffer.view.format).decode()
    if kind not in UUID_FORMATS:
        raise TypeError(
            f"{name} must hold bytes, 16 for each key, such as bytes or a numpy S16 array; "
            f"this has format {kind!r}"
        )
    if buffer.view.len % 16 != 0:
        raise ValueError(f"{name} must hold 16 bytes for each key, and has {buffer.view.len}")
    buffer.count = buffer.view.len // 16
    return buffer


cdef int same_length(_Buffer left, str left_name, _Buffer right, str right_name) except -1:
    if left.count != right.count:
        raise ValueError(
            f"{left_name} and {right_name} must have the same length, "
            f"and have {left.count} and {right.count}"
        )
    return 0
