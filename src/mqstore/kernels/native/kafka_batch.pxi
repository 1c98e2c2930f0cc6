# Kafka's batches into columns, and the index entries they get (docs/format/kafka-batch.md, kafka-index.md).

from mqstore.kernels.kafka_api import BatchColumns, HeaderLists, IndexRun, IndexState, RecordColumns

cdef extern from "kafka.h" nogil:
    const uint8_t* mq_varint(const uint8_t*, const uint8_t*, int64_t*)
    const uint8_t* mq_varlong(const uint8_t*, const uint8_t*, int64_t*)
    const uint8_t* mq_sized(const uint8_t*, const uint8_t*, int64_t*)
    int mq_varint_size(int64_t)
    uint8_t* mq_put_varint(uint8_t*, int64_t)
    void mq_prefetch_record(const uint8_t*, int64_t)

cdef enum:
    # Stop reasons of BatchStop; END, SHORT and FULL are numbered as those of a scan.
    STOP_PADDING = 3
    # Sizes and bits, as layout.kafka.constants has them.
    PREFIX_SIZE = 12
    PREFIX_AND_MAGIC_SIZE = 17
    BATCH_HEADER_SIZE = 61
    CHECKED_FROM = 21
    MESSAGE_CHECKED_FROM = 16
    MIN_RECORD_BYTES = 7
    CODEC_BITS = 0x07
    APPEND_TIME_BIT = 0x08

cdef enum Judgement:
    # Values of layout.kafka.damage.Damage.
    SOUND = 0
    CUT_SHORT = 1
    NEVER_WRITTEN = 2
    FOREIGN_MAGIC = 3
    BAD_LENGTH = 4
    BAD_OFFSETS = 5
    BAD_COUNT = 6
    BAD_CRC = 7
    BAD_RECORD = 11
    BAD_RECORD_OFFSET = 12


cdef struct Batch:
    # One batch's header.
    int64_t position
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp_ms
    int64_t max_timestamp_ms
    int64_t producer_id
    int64_t crc
    int32_t size
    int32_t magic
    int32_t attributes
    int32_t leader_epoch
    int32_t record_count
    int32_t producer_epoch
    int32_t base_sequence


cdef struct Batches:
    # The arena of a BatchColumns. The order is that of the class, and of Batch.
    int64_t* position
    int64_t* base_offset
    int64_t* last_offset
    int64_t* base_timestamp_ms
    int64_t* max_timestamp_ms
    int64_t* producer_id
    int64_t* crc
    int32_t* size
    int32_t* magic
    int32_t* attributes
    int32_t* leader_epoch
    int32_t* record_count
    int32_t* producer_epoch
    int32_t* base_sequence

cdef enum:
    BATCH_WIDE = 7
    BATCH_NARROW = 7
    BATCH_ROW_SIZE = 7 * 8 + 7 * 4


cdef void lay_out_batches(Batches* columns, char* arena, int64_t capacity) noexcept nogil:
    cdef int64_t** wide = &columns.position
    cdef int32_t** narrow = &columns.size
    cdef int k
    for k in range(BATCH_WIDE):
        wide[k] = <int64_t*> arena + k * capacity
    for k in range(BATCH_NARROW):
        narrow[k] = <int32_t*> (arena + BATCH_WIDE * 8 * capacity) + k * capacity


cdef bytearray open_batches(columns, Batches* opened, int64_t* count):
    """Fill ``opened`` from a BatchColumns; keep the returned arena as long as it is used."""
    cdef bytearray arena = columns.arena
    cdef int64_t capacity = columns.capacity
    count[0] = columns.count
    if type(columns) is not BatchColumns or not 0 <= count[0] <= capacity <= len(arena) // BATCH_ROW_SIZE:
        raise UsageError("these columns were not made by a walk over batches", found=len(arena))
    lay_out_batches(opened, PyByteArray_AS_STRING(arena), capacity)
    return arena


cdef inline void put_batch_row(Batches* columns, int64_t row, Batch* batch) noexcept nogil:
    columns.position[row] = batch.position
    columns.base_offset[row] = batch.base_offset
    columns.last_offset[row] = batch.last_offset
    columns.base_timestamp_ms[row] = batch.base_timestamp_ms
    columns.max_timestamp_ms[row] = batch.max_timestamp_ms
    columns.producer_id[row] = batch.producer_id
    columns.crc[row] = batch.crc
    columns.size[row] = batch.size
    columns.magic[row] = batch.magic
    columns.attributes[row] = batch.attributes
    columns.leader_epoch[row] = batch.leader_epoch
    columns.record_count[row] = batch.record_count
    columns.producer_epoch[row] = batch.producer_epoch
    columns.base_sequence[row] = batch.base_sequence


cdef inline void get_batch_row(Batches* columns, int64_t row, Batch* batch) noexcept nogil:
    """What records need to know of a row."""
    batch.position = columns.position[row]
    batch.base_offset = columns.base_offset[row]
    batch.last_offset = columns.last_offset[row]
    batch.base_timestamp_ms = columns.base_timestamp_ms[row]
    batch.max_timestamp_ms = columns.max_timestamp_ms[row]
    batch.size = columns.size[row]
    batch.magic = columns.magic[row]
    batch.attributes = columns.attributes[row]
    batch.record_count = columns.record_count[row]


# ---- one batch -------------------------------------------------------------------------------------------------

cdef inline bint is_zero(const uint8_t* p) noexcept nogil:
    """Whether the first 17 bytes are."""
    return mq_get64(p) == 0 and mq_get64(p + 8) == 0 and p[16] == 0


cdef inline int32_t min_length(int magic) noexcept nogil:
    return 49 if magic == 2 else 22 if magic == 1 else 14


cdef Judgement judge_batch_head(const uint8_t* p, int64_t left, Batch* batch) noexcept nogil:
    """The rules of a batch up to COUNT, in their order."""
    cdef int32_t length, last_delta, room
    cdef int64_t offset
    cdef int magic
    if left < PREFIX_AND_MAGIC_SIZE:
        return CUT_SHORT
    magic = p[16]
    if magic == 0 and is_zero(p):
        return NEVER_WRITTEN
    if magic > 2:
        return FOREIGN_MAGIC
    offset, length = mq_get64(p), mq_get32(p + 8)
    if not min_length(magic) <= length <= INT_MAX - PREFIX_SIZE:
        return BAD_LENGTH
    if length > left - PREFIX_SIZE:
        return CUT_SHORT
    batch.size, batch.magic = length + PREFIX_SIZE, magic
    batch.base_offset = batch.last_offset = offset
    if magic < 2:
        return judge_message_head(p, batch)
    last_delta = mq_get32(p + 23)
    if offset < 0 or last_delta < 0 or offset > LONG_MAX - last_delta:
        return BAD_OFFSETS
    batch.last_offset = offset + last_delta
    batch.leader_epoch = mq_get32(p + 12)
    batch.crc = <uint32_t> mq_get32(p + 17)
    batch.attributes = mq_get16(p + 21)
    batch.base_timestamp_ms, batch.max_timestamp_ms = mq_get64(p + 27), mq_get64(p + 35)
    batch.producer_id, batch.producer_epoch = mq_get64(p + 43), mq_get16(p + 51)
    batch.base_sequence, batch.record_count = mq_get32(p + 53), mq_get32(p + 57)
    room = (batch.size - BATCH_HEADER_SIZE) // MIN_RECORD_BYTES
    if batch.record_count < 0 or (batch.record_count > room and batch.attributes & CODEC_BITS == 0):
        return BAD_COUNT
    return SOUND


cdef inline Judgement judge_message_head(const uint8_t* p, Batch* batch) noexcept nogil:
    """The rest of it for formats 0 and 1; offset, size and magic are set."""
    if batch.base_offset < 0:
        return BAD_OFFSETS
    batch.crc = <uint32_t> mq_get32(p + 12)
    batch.attributes = <int8_t> p[17]
    batch.base_timestamp_ms = batch.max_timestamp_ms = mq_get64(p + 18) if batch.magic == 1 else -1
    batch.producer_id = batch.producer_epoch = batch.base_sequence = batch.leader_epoch = -1
    batch.record_count = -1 if batch.attributes & CODEC_BITS else 1
    return SOUND


cdef inline bint has_batch_crc(const uint8_t* p, Batch* batch) noexcept nogil:
    if batch.magic == 2:
        return mq_crc32c(0, p + CHECKED_FROM, batch.size - CHECKED_FROM) == batch.crc
    return mq_crc32(0, p + MESSAGE_CHECKED_FROM, batch.size - MESSAGE_CHECKED_FROM) == batch.crc


# ---- many ------------------------------------------------------------------------------------------------------

cdef struct BatchWalk:
    const uint8_t* base
    int64_t position
    int64_t end
    int64_t count
    int stop
    int damage


cdef void walk_batches(BatchWalk* state, Batches* columns, int64_t max_rows, bint check_crc) noexcept nogil:
    """Read batches until a reason to stop, or until ``max_rows`` rows are filled: STOP_FULL."""
    cdef Batch batch
    cdef Judgement judgement
    cdef const uint8_t* p
    while state.position < state.end:
        if state.count == max_rows:
            state.stop = STOP_FULL
            return
        p = state.base + state.position
        judgement = judge_batch_head(p, state.end - state.position, &batch)
        if judgement == SOUND and check_crc and not has_batch_crc(p, &batch):
            judgement = BAD_CRC
        if judgement != SOUND:
            state.stop = STOP_DAMAGED
            if judgement == CUT_SHORT:
                state.stop, judgement = STOP_SHORT, SOUND
            elif judgement == NEVER_WRITTEN:
                state.stop = STOP_PADDING
            state.damage = judgement
            return
        batch.position = state.position
        put_batch_row(columns, state.count, &batch)
        state.count += 1
        state.position += batch.size
    state.stop = STOP_END


cdef bytearray grown_batches(bytearray arena, Batches* columns, int64_t count, int64_t capacity):
    """A new arena of ``capacity`` rows with the first ``count`` rows of the old one."""
    cdef bytearray larger = PyByteArray_FromStringAndSize(NULL, capacity * BATCH_ROW_SIZE)
    cdef Batches old = columns[0]
    cdef int64_t** wide = &columns.position
    cdef int32_t** narrow = &columns.size
    cdef int64_t** old_wide = &old.position
    cdef int32_t** old_narrow = &old.size
    cdef int k
    lay_out_batches(columns, PyByteArray_AS_STRING(larger), capacity)
    if arena is not None:
        for k in range(BATCH_WIDE):
            memcpy(wide[k], old_wide[k], count * 8)
        for k in range(BATCH_NARROW):
            memcpy(narrow[k], old_narrow[k], count * 4)
    return larger


cdef int64_t likely_batches(const uint8_t* p, int64_t left) noexcept nogil:
    """How many batches ``left`` bytes may hold, judged by the first one."""
    cdef int64_t size = 26
    if left >= PREFIX_SIZE:
        size = max(size, <int64_t> mq_get32(p + 8) + PREFIX_SIZE)
    return left // size * 9 // 8 + 8


def kafka_batches(buffer, Py_ssize_t position, Py_ssize_t end, *, Py_ssize_t max_batches=65536, bint check_crc=True):
    """Batches into BatchColumns; see mqstore.kernels.kafka_api.KafkaKernels.kafka_batches."""
    cdef Source source = Source(buffer)
    cdef Batches columns
    cdef BatchWalk state
    cdef bytearray arena = None
    cdef int64_t capacity, most
    check_range(source.size, position, end, 0)
    if max_batches < 1:
        raise UsageError("max_batches must be at least 1", found=max_batches)
    memset(&state, 0, sizeof(BatchWalk))
    memset(&columns, 0, sizeof(Batches))
    state.base, state.position, state.end = source.at, position, end
    most = min(<int64_t> max_batches, (end - position) // 26 + 1)
    capacity = min(most, likely_batches(source.at + position, end - position))
    while True:
        arena = grown_batches(arena, &columns, state.count, capacity)
        with nogil:
            walk_batches(&state, &columns, min(most, capacity), check_crc)
        if state.stop != STOP_FULL or state.count >= most:
            break
        capacity = min(most, 2 * capacity)
    return BatchColumns(arena, capacity, state.count, state.position, state.stop, state.damage)


# ---- index entries ---------------------------------------------------------------------------------------------

cdef struct IndexWalk:
    int64_t bytes_since
    int64_t largest_ms
    int64_t largest_offset
    int64_t indexed_ms
    int64_t rows
    int64_t times


cdef void walk_index(
    Batches* columns, int64_t start, int64_t stop, int64_t interval, IndexWalk* walk, int32_t* rows, int64_t* times,
    int64_t* offsets,
) noexcept nogil:
    cdef int64_t row
    for row in range(start, stop):
        if columns.max_timestamp_ms[row] > walk.largest_ms:
            walk.largest_ms, walk.largest_offset = columns.max_timestamp_ms[row], columns.last_offset[row]
        if walk.bytes_since > interval:
            rows[walk.rows] = <int32_t> row
            walk.rows += 1
            if walk.largest_ms > walk.indexed_ms:
                times[walk.times], offsets[walk.times] = walk.largest_ms, walk.largest_offset
                walk.times += 1
                walk.indexed_ms = walk.largest_ms
            walk.bytes_since = 0
        walk.bytes_since += columns.size[row]


def kafka_index(batches, Py_ssize_t start, Py_ssize_t stop, int64_t interval_bytes, state):
    """Index entries of batches; see mqstore.kernels.kafka_api.KafkaKernels.kafka_index."""
    cdef Batches columns
    cdef IndexWalk walk
    cdef int64_t count
    cdef bytearray arena = open_batches(batches, &columns, &count)
    cdef Target rows, times, offsets
    check_rows(count, start, stop)
    walk.bytes_since, walk.largest_ms, walk.largest_offset, walk.indexed_ms = state
    walk.rows = walk.times = 0
    rows = allocated(None, 4 * (stop - start))
    times, offsets = allocated(None, 8 * (stop - start)), allocated(None, 8 * (stop - start))
    with nogil:
        walk_index(
            &columns, start, stop, interval_bytes, &walk, <int32_t*> rows.at, <int64_t*> times.at,
            <int64_t*> offsets.at,
        )
    after = IndexState(walk.bytes_since, walk.largest_ms, walk.largest_offset, walk.indexed_ms)
    return IndexRun(
        memoryview(rows.done())[: 4 * walk.rows].cast("i"), memoryview(times.done())[: 8 * walk.times].cast("q"),
        memoryview(offsets.done())[: 8 * walk.times].cast("q"), after,
    )
