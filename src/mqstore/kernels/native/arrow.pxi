# Columns of scanned records in Arrow's memory layout. Every function goes over its rows twice: first for the offsets,
# then for the data, so that each buffer is allocated once and in its final size.


cdef int too_large() except -1:
    raise OverflowError("the column would hold 2 GiB or more: take fewer rows")


cdef Target validity_bits(allocate, const int32_t* sizes, int64_t count):
    """One bit per row, set where the size is not negative."""
    cdef Target bits = allocated(allocate, (count + 7) // 8)
    cdef int64_t row
    memset(bits.at, 0, (count + 7) // 8)
    for row in range(count):
        bits.at[row >> 3] |= (sizes[row] >= 0) << (row & 7)
    return bits


cdef int64_t gather_offsets(
    const uint8_t* base, Py_ssize_t size, const int64_t* positions, const int32_t* sizes, int64_t count, bint utf8,
    int32_t* offsets, int64_t* nulls,
) noexcept nogil:
    """Fill the offsets; the bytes of data, -1 for places outside the buffer."""
    cdef int64_t total = 0
    cdef int64_t row
    offsets[0] = 0
    nulls[0] = 0
    for row in range(count):
        if sizes[row] < 0:
            nulls[0] += 1
        elif not inside(size, positions[row], sizes[row]):
            return -1
        elif utf8 and not mq_is_ascii(base + positions[row], sizes[row]):
            total += mended_text(base + positions[row], sizes[row], NULL)
        else:
            total += sizes[row]
        if total > INT_MAX:
            return total
        offsets[row + 1] = <int32_t> total
    return total


cdef void gather_data(
    const uint8_t* base, const int64_t* positions, const int32_t* sizes, int64_t count, bint utf8, uint8_t* data
) noexcept nogil:
    cdef int64_t row
    cdef int64_t at = 0
    for row in range(count):
        if sizes[row] <= 0:
            continue
        if utf8 and not mq_is_ascii(base + positions[row], sizes[row]):
            at += mended_text(base + positions[row], sizes[row], data + at)
        else:
            memcpy(data + at, base + positions[row], sizes[row])
            at += sizes[row]


def gather(
    buffer, positions, sizes, Py_ssize_t start, Py_ssize_t stop, *, bint utf8=False, allocate=None
):
    """Bytes of rows as one column; see mqstore.kernels.api.Kernels.gather."""
    cdef Source source = Source(buffer)
    cdef Source places = Source(positions)
    cdef Source lengths = Source(sizes)
    cdef Target offsets, data
    cdef int64_t total, nulls
    cdef int64_t count = stop - start
    check_rows(min(places.size // 8, lengths.size // 4), start, stop)
    cdef const int64_t* first_place = <const int64_t*> places.at + start
    cdef const int32_t* first_size = <const int32_t*> lengths.at + start
    offsets = allocated(allocate, 4 * (count + 1))
    with nogil:
        total = gather_offsets(
            source.at, source.size, first_place, first_size, count, utf8, <int32_t*> offsets.at, &nulls
        )
    if total < 0:
        foreign_columns(source.size)
    if total > INT_MAX:
        too_large()
    data = allocated(allocate, total)
    with nogil:
        gather_data(source.at, first_place, first_size, count, utf8, data.at)
    validity = validity_bits(allocate, first_size, count).done() if nulls else None
    return Strings(offsets.done(), data.done(), validity)


# ---- keys ------------------------------------------------------------------------------------------------------

cdef struct Sizes:
    # How many strings and bytes of them there are.
    int64_t strings
    int64_t bytes


cdef Sizes walk_keys(
    const uint8_t* base, Columns* columns, int64_t start, int64_t stop, int32_t* list_offsets, int32_t* offsets,
    uint8_t* data,
) noexcept nogil:
    """Walk over all keys, writing what is not NULL."""
    cdef Sizes sizes
    cdef int64_t row, length
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef const uint8_t* blank
    sizes.strings = sizes.bytes = 0
    for row in range(start, stop):
        if list_offsets != NULL:
            list_offsets[row - start] = <int32_t> min(sizes.strings, <int64_t> INT_MAX)
        at = base + columns.keys_position[row]
        end = at + max(columns.keys_size[row], 0)
        while at < end:
            blank = <const uint8_t*> memchr(at, c' ', end - at)
            if blank == NULL:
                blank = end
            if blank > at:
                if offsets != NULL:
                    offsets[sizes.strings] = <int32_t> sizes.bytes
                if mq_is_ascii(at, blank - at):
                    length = blank - at
                    if data != NULL:
                        memcpy(data + sizes.bytes, at, length)
                else:
                    length = mended_text(at, blank - at, NULL if data == NULL else data + sizes.bytes)
                sizes.bytes += length
                sizes.strings += 1
            at = blank + 1
    if list_offsets != NULL:
        list_offsets[stop - start] = <int32_t> min(sizes.strings, <int64_t> INT_MAX)
    if offsets != NULL:
        offsets[sizes.strings] = <int32_t> sizes.bytes
    return sizes


def split_keys(buffer, columns, Py_ssize_t start, Py_ssize_t stop, *, allocate=None):
    """User keys of rows; see mqstore.kernels.api.Kernels.split_keys."""
    cdef Source source = Source(buffer)
    cdef Columns rows
    cdef bytearray arena = open_columns(columns, &rows)
    cdef Target list_offsets, offsets, data
    cdef Sizes sizes
    cdef int64_t row
    cdef bint nulls = False
    check_rows(rows.count, start, stop)
    check_parts(&rows, source.size, start, stop)
    list_offsets = allocated(allocate, 4 * (stop - start + 1))
    with nogil:
        sizes = walk_keys(source.at, &rows, start, stop, <int32_t*> list_offsets.at, NULL, NULL)
    if sizes.strings > INT_MAX or sizes.bytes > INT_MAX:
        too_large()
    offsets = allocated(allocate, 4 * (sizes.strings + 1))
    data = allocated(allocate, sizes.bytes)
    with nogil:
        walk_keys(source.at, &rows, start, stop, NULL, <int32_t*> offsets.at, data.at)
        for row in range(start, stop):
            nulls |= rows.keys_size[row] < 0
    validity = validity_bits(allocate, rows.keys_size + start, stop - start).done() if nulls else None
    return StringLists(list_offsets.done(), offsets.done(), data.done(), validity)


# ---- properties ------------------------------------------------------------------------------------------------

cdef struct Pair:
    # A property; the name and the value lie at ``text``.
    const uint8_t* text
    Span name
    Span value


cdef struct Mended:
    # A copy of properties whose UTF-8 was malformed. Copies are kept in a chain until all pairs are written.
    Mended* next


cdef struct Pairs:
    # All properties of all rows. ``table`` is an open hash table over the names of one row (number in the row + 1),
    # used for rows with many.
    Pair* pairs
    int64_t count
    int64_t capacity
    Mended* mended
    int32_t* table
    int64_t name_bytes
    int64_t value_bytes

cdef enum:
    # Up to this many names in a row are compared one by one.
    FEW_NAMES = 16
    # A properties string of 32,767 bytes has at most 8,192 pairs; the table stays half empty.
    TABLE_SIZE = 16384


cdef inline bint same_name(Pair* pair, const uint8_t* text, Span name) noexcept nogil:
    return pair.name.size == name.size and memcmp(pair.text + pair.name.start, text + name.start, name.size) == 0


cdef inline int32_t* table_place(Pairs* found, Pair* row, const uint8_t* text, Span name) noexcept nogil:
    cdef uint64_t at = mq_hash(_seed, text + name.start, name.size) & (TABLE_SIZE - 1)
    while found.table[at] != 0 and not same_name(row + (found.table[at] - 1), text, name):
        at = (at + 1) & (TABLE_SIZE - 1)
    return found.table + at


cdef Pair* known_pair(Pairs* found, int64_t first, const uint8_t* text, Span name) noexcept nogil:
    """The pair of this row (they begin at number ``first``) that has the name, or NULL."""
    cdef Pair* row = found.pairs + first
    cdef int64_t count = found.count - first
    cdef int64_t k
    cdef int32_t* place
    if count <= FEW_NAMES:
        for k in range(count):
            if same_name(row + k, text, name):
                return row + k
        return NULL
    if count == FEW_NAMES + 1:
        memset(found.table, 0, TABLE_SIZE * sizeof(int32_t))
        for k in range(count):
            table_place(found, row, row[k].text, row[k].name)[0] = <int32_t> k + 1
    place = table_place(found, row, text, name)
    if place[0] != 0:
        return row + (place[0] - 1)
    place[0] = <int32_t> count + 1
    return NULL


cdef const uint8_t* mend(Pairs* found, const uint8_t* text, int32_t* size) noexcept nogil:
    """``text`` itself, or a copy with malformed UTF-8 replaced; NULL without memory. Marks are never swallowed."""
    cdef Mended* copy
    cdef int64_t mended_size
    if is_well_formed(text, size[0]):
        return text
    mended_size = mended_text(text, size[0], NULL)
    copy = <Mended*> malloc(sizeof(Mended) + mended_size)
    if copy == NULL:
        return NULL
    copy.next, found.mended = found.mended, copy
    mended_text(text, size[0], <uint8_t*> (copy + 1))
    size[0] = <int32_t> mended_size
    return <uint8_t*> (copy + 1)


cdef bint add_pair(Pairs* found, int64_t first, const uint8_t* text, Span name, Span value) noexcept nogil:
    """Add a property to the row that begins at pair ``first``; False without memory."""
    cdef Pair* pair
    cdef Pair* larger
    if name.size == 0 or value.size == 0:
        return True
    pair = known_pair(found, first, text, name)
    if pair != NULL:
        found.value_bytes += value.size - pair.value.size
        pair.text, pair.name, pair.value = text, name, value
        return True
    if found.count == found.capacity:
        larger = <Pair*> realloc(found.pairs, 2 * found.capacity * sizeof(Pair))
        if larger == NULL:
            return False
        found.pairs = larger
        found.capacity *= 2
    pair = found.pairs + found.count
    pair.text, pair.name, pair.value = text, name, value
    found.count += 1
    found.name_bytes += name.size
    found.value_bytes += value.size
    return True


cdef int64_t find_pairs(
    Pairs* found, const uint8_t* base, Columns* columns, int64_t start, int64_t stop, int32_t* list_offsets
) noexcept nogil:
    """Collect the properties of all rows; -1 without memory."""
    cdef const uint8_t* text
    cdef int64_t row, first
    cdef int32_t size, at
    cdef bint damaged = False
    cdef Span name, value
    for row in range(start, stop):
        if found.count > INT_MAX or found.name_bytes > INT_MAX or found.value_bytes > INT_MAX:
            return 0
        first = found.count
        list_offsets[row - start] = <int32_t> first
        size = columns.properties_size[row]
        text = mend(found, base + columns.properties_position[row], &size)
        if text == NULL:
            return -1
        at = 0
        while next_pair(text, size, &at, &name, &value, &damaged):
            if not add_pair(found, first, text, name, value):
                return -1
    list_offsets[stop - start] = <int32_t> min(found.count, <int64_t> INT_MAX)
    return 0


cdef void write_spans(Pairs* found, bint names, int32_t* offsets, uint8_t* data) noexcept nogil:
    cdef int64_t k
    cdef int64_t at = 0
    cdef Pair* pair
    cdef Span span
    for k in range(found.count):
        pair = found.pairs + k
        span = pair.name if names else pair.value
        offsets[k] = <int32_t> at
        memcpy(data + at, pair.text + span.start, span.size)
        at += span.size
    offsets[found.count] = <int32_t> at


cdef void free_pairs(Pairs* found) noexcept nogil:
    cdef Mended* copy
    while found.mended != NULL:
        copy = found.mended
        found.mended = copy.next
        free(copy)
    free(found.pairs)
    free(found.table)


def properties_map(buffer, columns, Py_ssize_t start, Py_ssize_t stop, *, allocate=None):
    """Properties of rows; see mqstore.kernels.api.Kernels.properties_map."""
    cdef Source source = Source(buffer)
    cdef Columns rows
    cdef bytearray arena = open_columns(columns, &rows)
    cdef Target list_offsets, name_offsets, name_data, value_offsets, value_data
    cdef Pairs found
    cdef int64_t result
    check_rows(rows.count, start, stop)
    check_parts(&rows, source.size, start, stop)
    list_offsets = allocated(allocate, 4 * (stop - start + 1))
    memset(&found, 0, sizeof(Pairs))
    found.capacity = 8 * (stop - start) + 8
    found.pairs = <Pair*> malloc(found.capacity * sizeof(Pair))
    found.table = <int32_t*> malloc(TABLE_SIZE * sizeof(int32_t))
    try:
        if found.pairs == NULL or found.table == NULL:
            raise MemoryError()
        with nogil:
            result = find_pairs(&found, source.at, &rows, start, stop, <int32_t*> list_offsets.at)
        if result < 0:
            raise MemoryError()
        if found.count > INT_MAX or found.name_bytes > INT_MAX or found.value_bytes > INT_MAX:
            too_large()
        name_offsets = allocated(allocate, 4 * (found.count + 1))
        name_data = allocated(allocate, found.name_bytes)
        value_offsets = allocated(allocate, 4 * (found.count + 1))
        value_data = allocated(allocate, found.value_bytes)
        with nogil:
            write_spans(&found, True, <int32_t*> name_offsets.at, name_data.at)
            write_spans(&found, False, <int32_t*> value_offsets.at, value_data.at)
    finally:
        free_pairs(&found)
    return StringMaps(
        list_offsets.done(), name_offsets.done(), name_data.done(), value_offsets.done(), value_data.done()
    )


def find_property(buffer, columns, bytes name, Py_ssize_t start, Py_ssize_t stop):
    """Places of one property's values; see mqstore.kernels.api.Kernels.find_property."""
    cdef Source source = Source(buffer)
    cdef Columns rows
    cdef bytearray arena = open_columns(columns, &rows)
    cdef bytearray positions, sizes
    cdef int64_t row
    cdef int64_t* place
    cdef int32_t* length
    cdef const uint8_t* wanted = <const uint8_t*> PyBytes_AS_STRING(name)
    cdef int32_t wanted_size = <int32_t> min(PyBytes_GET_SIZE(name), <Py_ssize_t> INT_MAX)
    cdef Span value
    check_rows(rows.count, start, stop)
    check_parts(&rows, source.size, start, stop)
    if wanted_size == 0:
        raise UsageError("a property has a name")
    positions = PyByteArray_FromStringAndSize(NULL, 8 * (stop - start))
    sizes = PyByteArray_FromStringAndSize(NULL, 4 * (stop - start))
    place = <int64_t*> PyByteArray_AS_STRING(positions)
    length = <int32_t*> PyByteArray_AS_STRING(sizes)
    with nogil:
        for row in range(start, stop):
            value = find_value(
                source.at + rows.properties_position[row], rows.properties_size[row], wanted, wanted_size
            )
            place[row - start] = rows.properties_position[row] + value.start if value.size >= 0 else 0
            length[row - start] = value.size
    return memoryview(positions).cast("q"), memoryview(sizes).cast("i")


# ---- numbers ---------------------------------------------------------------------------------------------------

def ms_to_us(column, Py_ssize_t start, Py_ssize_t stop, *, allocate=None):
    """Times in ms as times in µs; see mqstore.kernels.api.Kernels.ms_to_us."""
    cdef Source source = Source(column)
    cdef const int64_t* times = <const int64_t*> source.at
    cdef int64_t most = LONG_MAX // 1000
    cdef Target made
    cdef int64_t* out
    cdef int64_t row
    check_rows(source.size // 8, start, stop)
    made = allocated(allocate, 8 * (stop - start))
    out = <int64_t*> made.at
    with nogil:
        for row in range(start, stop):
            if times[row] > most:
                out[row - start] = LONG_MAX
            elif times[row] < -most:
                out[row - start] = LONG_MIN
            else:
                out[row - start] = 1000 * times[row]
    return made.done()
