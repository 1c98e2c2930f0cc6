# Headers of Kafka's records in Arrow's memory layout, in two passes as all such columns.

cdef struct HeaderSizes:
    int64_t headers
    int64_t names
    int64_t values
    int64_t nulls


cdef struct HeaderColumns:
    int32_t* list_offsets
    int32_t* name_offsets
    uint8_t* names
    int32_t* value_offsets
    uint8_t* values
    uint8_t* validity


cdef bint walk_headers(
    const uint8_t* base, int64_t size, Records* records, int64_t start, int64_t stop, HeaderSizes* sizes,
    HeaderColumns* columns,
) noexcept nogil:
    """Walk over all headers, writing where ``columns`` is not NULL; False when they do not lie in the buffer.

    The buffer may have changed since the records were found, and between the passes if others write to it: the second
    pass stops where it would write more than the first has counted.
    """
    cdef HeaderSizes most = sizes[0]
    cdef int64_t row, k, name_size, value_size, mended
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* name
    memset(sizes, 0, sizeof(HeaderSizes))
    for row in range(start, stop):
        if columns != NULL:
            columns.list_offsets[row - start] = <int32_t> sizes.headers
        if not inside(size, records.headers_position[row], records.headers_size[row]):
            return False
        if records.headers_count[row] < 0 or records.headers_count[row] > records.headers_size[row] // 2:
            return False
        p = base + records.headers_position[row]
        end = p + records.headers_size[row]
        for k in range(records.headers_count[row]):
            name = mq_sized(p, end, &name_size)
            if name == NULL or name_size < 0:
                return False
            p = mq_sized(name + name_size, end, &value_size)
            if p == NULL:
                return False
            mended = name_size if mq_is_ascii(name, name_size) else mended_text(name, <int32_t> name_size, NULL)
            if columns != NULL:
                if (
                    sizes.headers >= most.headers or mended > most.names - sizes.names
                    or value_size > most.values - sizes.values
                ):
                    return False
                columns.name_offsets[sizes.headers] = <int32_t> sizes.names
                columns.value_offsets[sizes.headers] = <int32_t> sizes.values
                if mended == name_size:
                    memcpy(columns.names + sizes.names, name, name_size)
                if not mq_is_ascii(name, name_size):
                    mended_text(name, <int32_t> name_size, columns.names + sizes.names)
                if value_size > 0:
                    memcpy(columns.values + sizes.values, p, value_size)
                if columns.validity != NULL and value_size >= 0:
                    columns.validity[sizes.headers >> 3] |= 1 << (sizes.headers & 7)
            sizes.headers += 1
            sizes.names += mended
            sizes.values += max(value_size, <int64_t> 0)
            sizes.nulls += value_size < 0
            p += max(value_size, <int64_t> 0)
        if p != end:
            return False
    if columns != NULL:
        columns.list_offsets[stop - start] = <int32_t> sizes.headers
        columns.name_offsets[sizes.headers] = <int32_t> sizes.names
        columns.value_offsets[sizes.headers] = <int32_t> sizes.values
    return True


cdef bytearray open_records(columns, Records* opened, int64_t* count):
    """Fill ``opened`` from a RecordColumns; keep the returned arena as long as it is used."""
    cdef bytearray arena = columns.arena
    cdef int64_t capacity = columns.capacity
    count[0] = columns.count
    if type(columns) is not RecordColumns or not 0 <= count[0] <= capacity <= len(arena) // RECORD_ROW_SIZE:
        raise UsageError("these columns were not made by a walk over records", found=len(arena))
    lay_out_records(opened, PyByteArray_AS_STRING(arena), capacity)
    return arena


def kafka_headers(buffer, records, Py_ssize_t start, Py_ssize_t stop, *, allocate=None):
    """Headers as a column; see mqstore.kernels.kafka_api.KafkaKernels.kafka_headers."""
    cdef Source source = Source(buffer)
    cdef Records rows
    cdef HeaderSizes sizes
    cdef HeaderColumns columns
    cdef Target list_offsets, name_offsets, names, value_offsets, values
    cdef Target validity = None
    cdef bint is_sound
    cdef int64_t count
    cdef bytearray arena = open_records(records, &rows, &count)
    check_rows(count, start, stop)
    memset(&sizes, 0, sizeof(HeaderSizes))
    with nogil:
        is_sound = walk_headers(source.at, source.size, &rows, start, stop, &sizes, NULL)
    if not is_sound:
        foreign_columns(source.size)
    if max(sizes.headers, max(sizes.names, sizes.values)) > INT_MAX:
        too_large()
    list_offsets = allocated(allocate, 4 * (stop - start + 1))
    name_offsets, names = allocated(allocate, 4 * (sizes.headers + 1)), allocated(allocate, sizes.names)
    value_offsets, values = allocated(allocate, 4 * (sizes.headers + 1)), allocated(allocate, sizes.values)
    columns.list_offsets = <int32_t*> list_offsets.at
    columns.name_offsets, columns.names = <int32_t*> name_offsets.at, names.at
    columns.value_offsets, columns.values = <int32_t*> value_offsets.at, values.at
    columns.validity = NULL
    if sizes.nulls:
        validity = allocated(allocate, (sizes.headers + 7) // 8)
        memset(validity.at, 0, (sizes.headers + 7) // 8)
        columns.validity = validity.at
    with nogil:
        is_sound = walk_headers(source.at, source.size, &rows, start, stop, &sizes, &columns)
    if not is_sound:
        foreign_columns(source.size)
    return HeaderLists(
        list_offsets.done(), name_offsets.done(), names.done(), value_offsets.done(), values.done(),
        None if validity is None else validity.done(),
    )
