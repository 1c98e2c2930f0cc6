# Shared by all parts: imports, constants of the format, buffers, argument checks, columns.

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from mqstore.errors import MessageIllegalError, UsageError
from mqstore.kernels.api import IndexSlots, LogColumns, QueueRun, StringLists, StringMaps, Strings

cdef extern from "stdint.h" nogil:
    const int64_t LONG_MAX "INT64_MAX"
    const int64_t LONG_MIN "INT64_MIN"

cdef extern from "bytes.h" nogil:
    int16_t mq_get16(const uint8_t*)
    void mq_prefetch(const uint8_t*)
    int32_t mq_get32(const uint8_t*)
    int64_t mq_get64(const uint8_t*)
    void mq_put16(uint8_t*, int32_t)
    void mq_put32(uint8_t*, int32_t)
    void mq_put64(uint8_t*, int64_t)
    void mq_publish(uint8_t*, int32_t, int32_t)
    int32_t mq_next_mark(const uint8_t*, int32_t, int32_t)
    bint mq_is_ascii(const uint8_t*, int64_t)
    uint32_t mq_hash_ascii(uint32_t, const uint8_t*, int64_t)
    uint64_t mq_hash(uint64_t, const uint8_t*, int64_t)
    void mq_prefetch_next(const uint8_t*, int32_t, bint)

cdef extern from "crc32.h" nogil:
    const char* const* mq_crc_names
    int MQ_CRC_WAYS
    void* mq_crc_by(int)
    void mq_crc_init()
    uint32_t mq_crc32(uint32_t, const uint8_t*, size_t)
    uint32_t mq_crc32c(uint32_t, const uint8_t*, size_t)
    uint32_t mq_crc_with(int, bint, uint32_t, const uint8_t*, size_t)
    uint32_t mq_crc_after_zeros(uint32_t, uint64_t)

cdef enum:
    # Magic codes as signed numbers, as layout.constants has them.
    MAGIC_V1 = -626843481
    MAGIC_V2 = -626843477
    MAGIC_BLANK = -875286124
    BLANK_SIZE = 8
    MIN_RECORD_SIZE = 91
    OWN_OFFSET_END = 36
    CRC_MASK = 0x7FFFFFFF
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    V6_BITS = 0x30
    TRANSACTION_MASK = 0xC
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_ROLLBACK = 0xC
    HOST_V4_SIZE = 8
    HOST_V6_SIZE = 20
    UNIT_SIZE = 20
    MAX_PROPERTIES_SIZE = 32767
    INT_MAX = 0x7FFFFFFF
    # Single blocks of at least this many bytes are worth handing the interpreter lock to others.
    RELEASE_SIZE = 65536

cdef int64_t MAX_PHYSICAL_OFFSET = <int64_t> 1 << 62


cdef class Source:
    """A buffer held for reading: ``at`` its bytes, ``size`` how many."""

    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t* at
    cdef Py_ssize_t size

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.at = <const uint8_t*> self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef class Target:
    """A buffer held for writing, in ``target``; :meth:`done` lets go of it and returns it."""

    cdef object target
    cdef Py_buffer view
    cdef bint held
    cdef uint8_t* at
    cdef Py_ssize_t size

    def __cinit__(self, target):
        self.target = target
        PyObject_GetBuffer(target, &self.view, PyBUF_WRITABLE)
        self.held = True
        self.at = <uint8_t*> self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef done(self):
        if self.held:
            PyBuffer_Release(&self.view)
            self.held = False
        return self.target


cdef Target allocated(allocate, int64_t size):
    """A new buffer of ``size`` bytes from ``allocate`` (None: a bytearray)."""
    cdef Target made
    if allocate is None:
        return Target(PyByteArray_FromStringAndSize(NULL, size))
    made = Target(allocate(size))
    if made.size < size:
        raise UsageError("the allocator gave too small a buffer", expected=size, found=made.size)
    return made


cdef int check_range(Py_ssize_t size, Py_ssize_t position, Py_ssize_t end, int64_t physical_offset) except -1:
    if not 0 <= position <= end <= size:
        raise UsageError(
            "the range lies outside the buffer", offset=position, expected=f"0..{size}", found=f"{position}..{end}"
        )
    if not 0 <= physical_offset <= MAX_PHYSICAL_OFFSET:
        raise UsageError("the physical offset is out of range", found=physical_offset)
    return 0


cdef int check_rows(Py_ssize_t count, Py_ssize_t start, Py_ssize_t stop) except -1:
    if not 0 <= start <= stop <= count:
        raise UsageError("no such rows", expected=f"0..{count}", found=f"{start}..{stop}")
    return 0


cdef int foreign_columns(Py_ssize_t size) except -1:
    raise UsageError("the columns belong to another buffer", found=f"{size} bytes")


cdef struct Columns:
    # The arena of a LogColumns. The order is that of the class.
    int64_t count
    int64_t physical_offset
    int64_t* position
    int64_t* queue_offset
    int64_t* born_timestamp_ms
    int64_t* store_timestamp_ms
    int64_t* prepared_transaction_offset
    int64_t* body_position
    int64_t* topic_position
    int64_t* properties_position
    int64_t* born_host_position
    int64_t* store_host_position
    int64_t* tags_position
    int64_t* keys_position
    int64_t* uniq_key_position
    int64_t* own_offset
    int32_t* size
    int32_t* magic
    int32_t* body_crc
    int32_t* queue_id
    int32_t* flag
    int32_t* sys_flag
    int32_t* reconsume_times
    int32_t* body_size
    int32_t* topic_size
    int32_t* properties_size
    int32_t* tags_size
    int32_t* keys_size
    int32_t* uniq_key_size

cdef enum:
    WIDE_COLUMNS = 14
    NARROW_COLUMNS = 13
    ROW_SIZE = 14 * 8 + 13 * 4


cdef void lay_out(Columns* columns, char* arena, int64_t capacity) noexcept nogil:
    cdef int64_t** wide = &columns.position
    cdef int32_t** narrow = &columns.size
    cdef int k
    for k in range(WIDE_COLUMNS):
        wide[k] = <int64_t*> arena + k * capacity
    for k in range(NARROW_COLUMNS):
        narrow[k] = <int32_t*> (arena + WIDE_COLUMNS * 8 * capacity) + k * capacity


cdef bytearray open_columns(columns, Columns* opened):
    """Fill ``opened`` from a LogColumns; keep the returned arena as long as it is used."""
    cdef bytearray arena = columns.arena
    cdef int64_t capacity = columns.capacity
    opened.count = columns.count
    opened.physical_offset = columns.physical_offset
    if not 0 <= opened.count <= capacity <= len(arena) // ROW_SIZE:
        raise UsageError("these columns were not made by a scan", found=len(arena))
    lay_out(opened, PyByteArray_AS_STRING(arena), capacity)
    return arena


cdef inline bint inside(Py_ssize_t size, int64_t position, int64_t length) noexcept nogil:
    """Whether ``length`` bytes at ``position`` lie in a buffer of ``size`` bytes."""
    return position >= 0 and length >= 0 and position <= size and length <= size - position
