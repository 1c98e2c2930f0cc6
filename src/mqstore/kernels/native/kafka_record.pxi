# Records of Kafka's batches into columns (docs/format/kafka-batch.md).

from array import array

cdef struct Records:
    # The arena of a RecordColumns. The order is that of the class.
    int64_t* offset
    int64_t* timestamp_ms
    int64_t* key_position
    int64_t* value_position
    int64_t* headers_position
    int32_t* key_size
    int32_t* value_size
    int32_t* headers_size
    int32_t* headers_count
    int32_t* batch_row

cdef enum:
    RECORD_WIDE = 5
    RECORD_NARROW = 5
    RECORD_ROW_SIZE = 5 * 8 + 5 * 4
    # Stop reasons of RecordStop.
    RECORDS_END = 0
    RECORDS_PACKED = 1
    RECORDS_DAMAGED = 2


cdef void lay_out_records(Records* columns, char* arena, int64_t capacity) noexcept nogil:
    cdef int64_t** wide = &columns.offset
    cdef int32_t** narrow = &columns.key_size
    cdef int k
    for k in range(RECORD_WIDE):
        wide[k] = <int64_t*> arena + k * capacity
    for k in range(RECORD_NARROW):
        narrow[k] = <int32_t*> (arena + RECORD_WIDE * 8 * capacity) + k * capacity


cdef const uint8_t* pass_headers(const uint8_t* p, const uint8_t* end, int64_t count) noexcept nogil:
    """The place behind ``count`` headers; NULL when they do not fit or one has no name."""
    cdef int64_t size
    while count > 0:
        p = mq_sized(p, end, &size)
        if p == NULL or size < 0:
            return NULL
        p = mq_sized(p + size, end, &size)
        if p == NULL:
            return NULL
        p += max(size, <int64_t> 0)
        count -= 1
    return p


cdef Judgement read_records(
    const uint8_t* base, const uint8_t* p, const uint8_t* end, Batch* batch, int64_t row, int32_t batch_row,
    Records* columns,
) noexcept nogil:
    """Fill rows from ``row`` on with the batch's records, which must fill [p, end); there must be room for them."""
    cdef bint has_append_time = batch.attributes & APPEND_TIME_BIT != 0
    cdef int64_t last_delta = batch.last_offset - batch.base_offset
    cdef int64_t stop = row + batch.record_count
    cdef int64_t size, timestamp, offset, key_size, value_size, headers
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef const uint8_t* record_end
    if batch.record_count > (end - p) // MIN_RECORD_BYTES:
        return BAD_COUNT
    while row < stop:
        p = mq_varint(p, end, &size)
        if p == NULL or size <= 0 or size > end - p:
            return BAD_RECORD
        mq_prefetch_record(p, size)
        record_end = p + size
        p = mq_varlong(p + 1, record_end, &timestamp)
        p = mq_varint(p, record_end, &offset)
        key = mq_sized(p, record_end, &key_size)
        if key == NULL:
            return BAD_RECORD
        value = mq_sized(key + max(key_size, <int64_t> 0), record_end, &value_size)
        if value == NULL:
            return BAD_RECORD
        p = mq_varint(value + max(value_size, <int64_t> 0), record_end, &headers)
        if p == NULL or headers < 0 or 2 * headers > record_end - p:
            return BAD_RECORD
        columns.headers_position[row] = p - base
        columns.headers_size[row] = <int32_t> (record_end - p)
        columns.headers_count[row] = <int32_t> headers
        if headers > 0:
            p = pass_headers(p, record_end, headers)
        if p != record_end:
            return BAD_RECORD
        if offset < 0 or offset > last_delta:
            return BAD_RECORD_OFFSET
        columns.offset[row] = batch.base_offset + offset
        # Unsigned, so that it wraps as Java's addition does.
        columns.timestamp_ms[row] = <int64_t> (<uint64_t> batch.base_timestamp_ms + <uint64_t> timestamp)
        if has_append_time:
            columns.timestamp_ms[row] = batch.max_timestamp_ms
        columns.key_position[row], columns.key_size[row] = key - base, <int32_t> key_size
        columns.value_position[row], columns.value_size[row] = value - base, <int32_t> value_size
        columns.batch_row[row] = batch_row
        row += 1
    return SOUND if p == end else BAD_RECORD


cdef inline int64_t old_part(const uint8_t* base, int64_t position, int64_t end, int32_t* size) noexcept nogil:
    """Position behind the length of a key or value of the old formats; -1 when it does not fit."""
    if end - position < 4:
        return -1
    size[0] = mq_get32(base + position)
    position += 4
    return -1 if size[0] < -1 or size[0] > end - position else position


cdef Judgement read_message(
    const uint8_t* base, Batch* batch, int64_t row, int32_t batch_row, Records* columns
) noexcept nogil:
    """Fill ``row`` with a message of format 0 or 1 that is not compressed."""
    cdef int64_t end = batch.position + batch.size
    cdef int64_t key, value
    cdef int32_t key_size, value_size
    key = old_part(base, batch.position + (26 if batch.magic == 1 else 18), end, &key_size)
    if key < 0:
        return BAD_RECORD
    value = old_part(base, key + max(key_size, 0), end, &value_size)
    if value < 0 or value + max(value_size, 0) != end:
        return BAD_RECORD
    columns.offset[row], columns.timestamp_ms[row] = batch.last_offset, batch.max_timestamp_ms
    columns.key_position[row], columns.key_size[row] = key, key_size
    columns.value_position[row], columns.value_size[row] = value, value_size
    columns.headers_position[row], columns.headers_size[row], columns.headers_count[row] = end, 0, 0
    columns.batch_row[row] = batch_row
    return SOUND


cdef struct RecordWalk:
    const uint8_t* base
    int64_t size
    # Where bodies begin and end, or NULL when records follow their headers.
    const int64_t* bodies
    int64_t first_row
    int64_t row
    int64_t stop_row
    int64_t count
    int stop
    int damage


cdef int check_row(RecordWalk* state, Batch* batch) noexcept nogil:
    """0 when the row can be read in this buffer; 1 when it is of another format, 2 when of another buffer."""
    if state.bodies != NULL:
        return 0 if batch.magic == 2 else 1
    if not 0 <= batch.magic <= 2:
        return 1
    if batch.size < PREFIX_SIZE + min_length(batch.magic) or not inside(state.size, batch.position, batch.size):
        return 2
    return 0


cdef int64_t count_records(RecordWalk* state, Batches* batches, int* fault) noexcept nogil:
    """How many rows the records may take, up to the first batch that is compressed or too small for its records."""
    cdef Batch batch
    cdef int64_t total = 0
    cdef int64_t room, row
    cdef bint is_over = False
    for row in range(state.row, state.stop_row):
        get_batch_row(batches, row, &batch)
        fault[0] = check_row(state, &batch)
        if fault[0]:
            return row
        if state.bodies != NULL:
            room = state.bodies[row - state.first_row + 1] - state.bodies[row - state.first_row]
        elif batch.attributes & CODEC_BITS:
            room = -1
        else:
            room = batch.size - BATCH_HEADER_SIZE if batch.magic == 2 else MIN_RECORD_BYTES
        is_over = is_over or not 0 <= batch.record_count * <int64_t> MIN_RECORD_BYTES <= room
        if not is_over:
            total += batch.record_count
    return total


cdef void walk_records(RecordWalk* state, Batches* batches, Records* columns) noexcept nogil:
    cdef Batch batch
    cdef Judgement judgement
    cdef const uint8_t* p
    cdef const uint8_t* end
    while state.row < state.stop_row:
        get_batch_row(batches, state.row, &batch)
        if state.bodies != NULL:
            p = state.base + state.bodies[state.row - state.first_row]
            end = state.base + state.bodies[state.row - state.first_row + 1]
        elif batch.attributes & CODEC_BITS:
            state.stop = RECORDS_PACKED
            return
        else:
            p, end = state.base + batch.position + BATCH_HEADER_SIZE, state.base + batch.position + batch.size
        if batch.record_count < 0 or (batch.magic < 2 and batch.record_count != 1):
            judgement = BAD_COUNT
        elif batch.magic == 2:
            judgement = read_records(state.base, p, end, &batch, state.count, <int32_t> state.row, columns)
        else:
            judgement = read_message(state.base, &batch, state.count, <int32_t> state.row, columns)
        if judgement != SOUND:
            state.stop, state.damage = RECORDS_DAMAGED, judgement
            return
        state.count += batch.record_count
        state.row += 1
    state.stop = RECORDS_END


def kafka_records(
    buffer, Py_ssize_t position, Py_ssize_t end, *, int64_t base_offset, int64_t last_offset,
    int64_t base_timestamp_ms, int32_t count, log_append_time_ms=None, int32_t batch_row=0,
):
    """Records of one batch; see mqstore.kernels.kafka_api.KafkaKernels.kafka_records."""
    cdef Source source = Source(buffer)
    cdef Records columns
    cdef Batch batch
    cdef bytearray arena
    cdef Judgement judgement
    check_range(source.size, position, end, 0)
    if not 0 <= base_offset <= last_offset or count < 0:
        raise UsageError("no such batch", found=(base_offset, last_offset, count))
    memset(&batch, 0, sizeof(Batch))
    batch.base_offset, batch.last_offset = base_offset, last_offset
    batch.base_timestamp_ms, batch.record_count = base_timestamp_ms, count
    if log_append_time_ms is not None:
        batch.max_timestamp_ms, batch.attributes = log_append_time_ms, APPEND_TIME_BIT
    if count > (end - position) // MIN_RECORD_BYTES:
        return RecordColumns(bytearray(), 0, 0, batch_row, RECORDS_DAMAGED, BAD_COUNT)
    arena = PyByteArray_FromStringAndSize(NULL, count * <int64_t> RECORD_ROW_SIZE)
    lay_out_records(&columns, PyByteArray_AS_STRING(arena), count)
    with nogil:
        judgement = read_records(
            source.at, source.at + position, source.at + end, &batch, 0, batch_row, &columns
        )
    if judgement != SOUND:
        return RecordColumns(bytearray(), 0, 0, batch_row, RECORDS_DAMAGED, judgement)
    return RecordColumns(arena, count, count, batch_row + 1, RECORDS_END)


cdef Source open_bodies(bodies, Py_ssize_t size, int64_t rows):
    """The numbers of ``bodies``, a sequence, as 64-bit ones: rising, and inside the buffer."""
    cdef Source opened
    cdef int64_t k
    cdef const int64_t* numbers
    opened = Source(array("q", bodies))
    numbers = <const int64_t*> opened.at
    if opened.size != 8 * (rows + 1) or numbers[0] < 0 or numbers[rows] > size:
        raise UsageError(
            "the bodies do not fit the rows or the buffer", expected=rows + 1, found=opened.size // 8
        )
    for k in range(rows):
        if numbers[k] > numbers[k + 1]:
            raise UsageError(
                "the bodies do not fit the rows or the buffer", expected=rows + 1, found=opened.size // 8
            )
    return opened


def kafka_batch_records(buffer, batches, Py_ssize_t start, Py_ssize_t stop, *, bodies=None):
    """Records of many batches; see mqstore.kernels.kafka_api.KafkaKernels.kafka_batch_records."""
    cdef Source source = Source(buffer)
    cdef Source ends
    cdef Batches rows
    cdef Records columns
    cdef RecordWalk state
    cdef int64_t total, count
    cdef int fault = 0
    cdef bytearray opened = open_batches(batches, &rows, &count)
    cdef bytearray arena
    check_rows(count, start, stop)
    memset(&state, 0, sizeof(RecordWalk))
    state.base, state.size = source.at, source.size
    state.first_row = state.row = start
    state.stop_row = stop
    if bodies is not None:
        ends = open_bodies(bodies, source.size, stop - start)
        state.bodies = <const int64_t*> ends.at
    with nogil:
        total = count_records(&state, &rows, &fault)
    if fault == 1:
        raise UsageError("a batch of another format cannot be read so", found=rows.magic[total])
    if fault == 2:
        foreign_columns(source.size)
    total = max(total, <int64_t> 1)
    arena = PyByteArray_FromStringAndSize(NULL, total * RECORD_ROW_SIZE)
    lay_out_records(&columns, PyByteArray_AS_STRING(arena), total)
    with nogil:
        walk_records(&state, &rows, &columns)
    return RecordColumns(arena, total, state.count, state.row, state.stop, state.damage)
