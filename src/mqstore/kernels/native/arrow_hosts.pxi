# Host addresses and message ids as text columns in Arrow's memory layout.

cdef inline int put_decimal(uint8_t* p, int32_t value) noexcept nogil:
    cdef uint32_t rest = <uint32_t> value
    cdef uint8_t digits[10]
    cdef int count = 0
    cdef int size = 0
    if value < 0:
        p[0] = c'-'
        size = 1
        rest = <uint32_t> 0 - rest
    while True:
        digits[count] = c'0' + rest % 10
        rest //= 10
        count += 1
        if rest == 0:
            break
    while count > 0:
        count -= 1
        p[size] = digits[count]
        size += 1
    return size


cdef const uint8_t* LOWER_DIGITS = b"0123456789abcdef"
cdef const uint8_t* UPPER_DIGITS = b"0123456789ABCDEF"


cdef inline int put_group(uint8_t* p, uint32_t value) noexcept nogil:
    """A group of an IPv6 address, without leading zeros."""
    cdef int size = 0
    cdef int shift = 12
    while shift >= 0:
        if size > 0 or shift == 0 or value >> shift != 0:
            p[size] = LOWER_DIGITS[value >> shift & 15]
            size += 1
        shift -= 4
    return size


cdef struct HostText:
    # The text of the host last seen: most rows have the host of the row before.
    uint8_t host[20]
    int host_size
    uint8_t text[64]
    int size


cdef inline void write_host(HostText* memo, const uint8_t* host, int host_size) noexcept nogil:
    cdef int k
    if memo.host_size == host_size and memcmp(memo.host, host, host_size) == 0:
        return
    memcpy(memo.host, host, host_size)
    memo.host_size = host_size
    memo.size = 0
    if host_size == HOST_V4_SIZE:
        for k in range(4):
            memo.size += put_decimal(memo.text + memo.size, host[k])
            memo.text[memo.size] = c':' if k == 3 else c'.'
            memo.size += 1
    else:
        for k in range(8):
            memo.size += put_group(memo.text + memo.size, <uint32_t> host[2 * k] << 8 | host[2 * k + 1])
            memo.text[memo.size] = c':'
            memo.size += 1
    memo.size += put_decimal(memo.text + memo.size, mq_get32(host + host_size - 4))


cdef int64_t walk_hosts(
    const uint8_t* base, Py_ssize_t size, const int64_t* positions, const int32_t* sys_flags, int32_t v6_bit,
    int64_t count, int32_t* offsets, uint8_t* data,
) noexcept nogil:
    """Write offsets, or data when ``offsets`` is NULL; the bytes of data, -1 for places outside the buffer."""
    cdef HostText memo
    cdef int64_t total = 0
    cdef int64_t row
    cdef int host_size
    memo.host_size = 0
    if offsets != NULL:
        offsets[0] = 0
    for row in range(count):
        host_size = HOST_V6_SIZE if sys_flags[row] & v6_bit else HOST_V4_SIZE
        if not inside(size, positions[row], host_size):
            return -1
        write_host(&memo, base + positions[row], host_size)
        if offsets == NULL:
            memcpy(data + total, memo.text, memo.size)
        total += memo.size
        if total > INT_MAX:
            return total
        if offsets != NULL:
            offsets[row + 1] = <int32_t> total
    return total


def host_text(buffer, columns, Py_ssize_t start, Py_ssize_t stop, *, bint store=False, allocate=None):
    """Hosts as text; see mqstore.kernels.api.Kernels.host_text."""
    cdef Source source = Source(buffer)
    cdef Columns rows
    cdef bytearray arena = open_columns(columns, &rows)
    cdef Target offsets, data
    cdef int64_t total
    cdef const int64_t* positions
    cdef int32_t bit = STORE_HOST_V6 if store else BORN_HOST_V6
    check_rows(rows.count, start, stop)
    positions = (rows.store_host_position if store else rows.born_host_position) + start
    offsets = allocated(allocate, 4 * (stop - start + 1))
    with nogil:
        total = walk_hosts(
            source.at, source.size, positions, rows.sys_flag + start, bit, stop - start, <int32_t*> offsets.at, NULL
        )
    if total < 0:
        foreign_columns(source.size)
    if total > INT_MAX:
        too_large()
    data = allocated(allocate, total)
    with nogil:
        walk_hosts(source.at, source.size, positions, rows.sys_flag + start, bit, stop - start, NULL, data.at)
    return Strings(offsets.done(), data.done(), None)


cdef inline uint8_t* put_hex(uint8_t* out, const uint8_t* p, int size) noexcept nogil:
    cdef int k
    for k in range(size):
        out[0] = UPPER_DIGITS[p[k] >> 4]
        out[1] = UPPER_DIGITS[p[k] & 15]
        out += 2
    return out


cdef int64_t id_offsets(Columns* columns, Py_ssize_t size, int64_t start, int64_t stop, int32_t* offsets) noexcept nogil:
    cdef int64_t total = 0
    cdef int64_t row
    cdef int host_size
    offsets[0] = 0
    for row in range(start, stop):
        host_size = HOST_V6_SIZE if columns.sys_flag[row] & STORE_HOST_V6 else HOST_V4_SIZE
        if not inside(size, columns.store_host_position[row], host_size):
            return -1
        total += 2 * (host_size + 8)
        if total > INT_MAX:
            return total
        offsets[row - start + 1] = <int32_t> total
    return total


def msg_id_text(buffer, columns, Py_ssize_t start, Py_ssize_t stop, *, allocate=None):
    """Offset message ids; see mqstore.kernels.api.Kernels.msg_id_text."""
    cdef Source source = Source(buffer)
    cdef Columns rows
    cdef bytearray arena = open_columns(columns, &rows)
    cdef Target offsets, data
    cdef int64_t total, row
    cdef uint8_t* out
    cdef uint8_t place[8]
    check_rows(rows.count, start, stop)
    offsets = allocated(allocate, 4 * (stop - start + 1))
    with nogil:
        total = id_offsets(&rows, source.size, start, stop, <int32_t*> offsets.at)
    if total < 0:
        foreign_columns(source.size)
    if total > INT_MAX:
        too_large()
    data = allocated(allocate, total)
    out = data.at
    with nogil:
        for row in range(start, stop):
            out = put_hex(
                out, source.at + rows.store_host_position[row],
                HOST_V6_SIZE if rows.sys_flag[row] & STORE_HOST_V6 else HOST_V4_SIZE,
            )
            mq_put64(place, rows.own_offset[row])
            out = put_hex(out, place, 8)
    return Strings(offsets.done(), data.done(), None)
