# Reading a log into columns, and finding a record's start in the middle of one.

cdef enum:
    STOP_END = 0
    STOP_SHORT = 1
    STOP_FULL = 2
    STOP_BLANK = 3
    STOP_DAMAGED = 4


cdef inline int64_t padded(int64_t rows) noexcept nogil:
    """A capacity of at least ``rows``.

    Its columns start at different cache sets: a distance of 320 bytes modulo 4096, not of whole pages.
    """
    return ((rows + 471) // 512) * 512 + 40


cdef inline void put_row(
    Columns* columns, int64_t row, const uint8_t* p, int64_t position, Parts* parts, Marks* marks
) noexcept nogil:
    cdef int64_t properties = position + parts.properties.start
    columns.position[row] = position
    columns.queue_offset[row] = mq_get64(p + 20)
    columns.born_timestamp_ms[row] = mq_get64(p + 40)
    columns.store_timestamp_ms[row] = mq_get64(p + parts.store_host - 8)
    columns.prepared_transaction_offset[row] = mq_get64(p + parts.body.start - 12)
    columns.body_position[row] = position + parts.body.start
    columns.topic_position[row] = position + parts.topic.start
    columns.properties_position[row] = properties
    columns.born_host_position[row] = position + 48
    columns.store_host_position[row] = position + parts.store_host
    columns.tags_position[row] = properties + marks.tags.start if marks.tags.size >= 0 else 0
    columns.keys_position[row] = properties + marks.keys.start if marks.keys.size >= 0 else 0
    columns.uniq_key_position[row] = properties + marks.uniq_key.start if marks.uniq_key.size >= 0 else 0
    columns.own_offset[row] = mq_get64(p + 28)
    columns.size[row] = parts.size
    columns.magic[row] = parts.magic
    columns.body_crc[row] = mq_get32(p + 8)
    columns.queue_id[row] = mq_get32(p + 12)
    columns.flag[row] = mq_get32(p + 16)
    columns.sys_flag[row] = parts.sys_flag
    columns.reconsume_times[row] = mq_get32(p + parts.body.start - 16)
    columns.body_size[row] = parts.body.size
    columns.topic_size[row] = parts.topic.size
    columns.properties_size[row] = parts.properties.size
    columns.tags_size[row] = marks.tags.size
    columns.keys_size[row] = marks.keys.size
    columns.uniq_key_size[row] = marks.uniq_key.size


cdef struct Walk:
    const uint8_t* base
    int64_t position
    int64_t end
    int64_t physical_offset
    int64_t count
    int stop
    int damage
    int32_t blank_size
    int32_t short_size


cdef void walk(Walk* state, Columns* columns, int64_t max_rows, bint check_crc) noexcept nogil:
    """Read records until a reason to stop, or until ``max_rows`` rows are filled: STOP_FULL."""
    cdef Parts parts
    cdef Marks marks
    cdef Verdict verdict
    cdef const uint8_t* p
    while state.position < state.end:
        if state.count == max_rows:
            state.stop = STOP_FULL
            return
        p = state.base + state.position
        verdict = judge(
            p, state.end - state.position, state.physical_offset + state.position, check_crc, &parts, &marks
        )
        if verdict == VALID:
            put_row(columns, state.count, p, state.position, &parts, &marks)
            state.count += 1
            state.position += parts.size
        elif verdict == IS_SHORT:
            state.stop, state.short_size = STOP_SHORT, parts.size
            return
        elif verdict == IS_BLANK:
            state.stop, state.blank_size = STOP_BLANK, parts.size
            return
        else:
            state.stop, state.damage = STOP_DAMAGED, verdict
            return
    state.stop = STOP_END


cdef int64_t likely_rows(const uint8_t* p, int64_t left) noexcept nogil:
    """How many records ``left`` bytes may hold, judged by the first one."""
    cdef int64_t size = MIN_RECORD_SIZE
    if left >= 4:
        size = max(size, <int64_t> mq_get32(p))
    return left // size * 9 // 8 + 8


cdef bytearray grown(bytearray arena, Columns* columns, int64_t count, int64_t capacity):
    """A new arena of ``capacity`` rows with the first ``count`` rows of the old one."""
    cdef bytearray larger = PyByteArray_FromStringAndSize(NULL, capacity * ROW_SIZE)
    cdef Columns old = columns[0]
    cdef int64_t** wide = &columns.position
    cdef int32_t** narrow = &columns.size
    cdef int64_t** old_wide = &old.position
    cdef int32_t** old_narrow = &old.size
    cdef int k
    lay_out(columns, PyByteArray_AS_STRING(larger), capacity)
    if arena is not None:
        for k in range(WIDE_COLUMNS):
            memcpy(wide[k], old_wide[k], count * 8)
        for k in range(NARROW_COLUMNS):
            memcpy(narrow[k], old_narrow[k], count * 4)
    return larger


def scan(
    buffer, Py_ssize_t position, Py_ssize_t end, int64_t physical_offset, *, Py_ssize_t max_records=65536,
    bint check_crc=True,
):
    """Read records into LogColumns; see mqstore.kernels.api.Kernels.scan."""
    cdef Source source = Source(buffer)
    cdef Columns columns
    cdef Walk state
    cdef bytearray arena = None
    cdef int64_t capacity, most
    check_range(source.size, position, end, physical_offset)
    if max_records < 1:
        raise UsageError("max_records must be at least 1", found=max_records)
    memset(&state, 0, sizeof(Walk))
    memset(&columns, 0, sizeof(Columns))
    state.base, state.position, state.end, state.physical_offset = source.at, position, end, physical_offset
    most = min(<int64_t> max_records, (end - position) // MIN_RECORD_SIZE + 1)
    capacity = padded(min(most, likely_rows(source.at + position, end - position)))
    while True:
        arena = grown(arena, &columns, state.count, capacity)
        with nogil:
            walk(&state, &columns, min(most, capacity), check_crc)
        if state.stop != STOP_FULL or state.count >= most:
            break
        capacity = padded(min(most, 2 * capacity))
    return LogColumns(
        arena, capacity, state.count, physical_offset, state.position, state.stop, state.damage, state.blank_size,
        state.short_size,
    )


# ---- resync ----------------------------------------------------------------------------------------------------

cdef enum:
    # Up to this size a body's checksum is taken directly: a bounded cost for each candidate.
    DIRECT_CRC_SIZE = 16384
    SUM_STEP = 4096


cdef struct PartialSums:
    # Checksums of [base, base + k * SUM_STEP) for k < count: see crc32.h for what they are good for.
    const uint8_t* base
    uint32_t* sums
    int64_t count
    int64_t capacity


cdef inline uint32_t sum_up_to(PartialSums* partial, int64_t position) noexcept nogil:
    cdef int64_t whole = position // SUM_STEP
    while partial.count <= whole:
        partial.sums[partial.count] = mq_crc32(
            partial.sums[partial.count - 1], partial.base + (partial.count - 1) * SUM_STEP, SUM_STEP
        )
        partial.count += 1
    return mq_crc32(partial.sums[whole], partial.base + whole * SUM_STEP, position - whole * SUM_STEP)


cdef bint body_matches(PartialSums* partial, const uint8_t* p, Parts* parts) noexcept nogil:
    """Whether the body has its checksum; no byte of the buffer is read more than a few times for large bodies.

    Without memory for the sums it is read directly, which is right as well.
    """
    cdef int64_t begin = p - partial.base + parts.body.start
    cdef uint32_t crc
    if parts.body.size > DIRECT_CRC_SIZE and partial.sums == NULL:
        partial.sums = <uint32_t*> malloc(partial.capacity * sizeof(uint32_t))
        if partial.sums != NULL:
            partial.sums[0] = 0
            partial.count = 1
    if parts.body.size <= DIRECT_CRC_SIZE or partial.sums == NULL:
        return has_body_crc(p, parts)
    crc = sum_up_to(partial, begin + parts.body.size)
    crc ^= mq_crc_after_zeros(sum_up_to(partial, begin), parts.body.size)
    return <int32_t> (crc & CRC_MASK) == mq_get32(p + 8)


cdef bint starts_here(PartialSums* partial, const uint8_t* p, int64_t left, int64_t own_offset) noexcept nogil:
    cdef Parts parts
    cdef Marks marks
    cdef Verdict verdict = judge_head(p, left, own_offset, &parts)
    if verdict == IS_SHORT:
        return True
    if verdict != VALID or find_parts(p, &parts) != VALID or not body_matches(partial, p, &parts):
        return False
    return read_properties(p + parts.properties.start, parts.properties.size, &marks)


cdef int64_t find_start(PartialSums* partial, int64_t size, int64_t own_offset) noexcept nogil:
    """First position in ``size`` bytes from ``partial.base`` on where a record starts, or -1."""
    cdef const uint8_t* base = partial.base
    cdef const uint8_t* found
    cdef int64_t at = 0
    while at <= size - OWN_OFFSET_END:
        # The first byte of both magic codes, four bytes into the record.
        found = <const uint8_t*> memchr(base + at + 4, 0xDA, size - OWN_OFFSET_END - at + 1)
        if found == NULL:
            return -1
        at = found - base - 4
        if (mq_get32(found) == MAGIC_V1 or mq_get32(found) == MAGIC_V2) and starts_here(
            partial, base + at, size - at, own_offset + at
        ):
            return at
        at += 1
    return -1


def resync(buffer, Py_ssize_t position, Py_ssize_t end, int64_t physical_offset):
    """First position where a record starts, or -1; see mqstore.kernels.api.Kernels.resync."""
    cdef Source source = Source(buffer)
    cdef PartialSums partial
    cdef int64_t found
    check_range(source.size, position, end, physical_offset)
    partial.base = source.at + position
    partial.sums = NULL
    partial.count = 0
    partial.capacity = (end - position) // SUM_STEP + 1
    with nogil:
        found = find_start(&partial, end - position, physical_offset + position)
        free(partial.sums)
    return -1 if found < 0 else position + found


# ---- checksums -------------------------------------------------------------------------------------------------

def crc32(data, value=0, /):
    """CRC-32 of ``data``, continuing ``value``; equals zlib.crc32."""
    cdef Source source = Source(data)
    cdef uint32_t crc = value & 0xFFFFFFFF
    if source.size < RELEASE_SIZE:
        return mq_crc32(crc, source.at, source.size)
    with nogil:
        crc = mq_crc32(crc, source.at, source.size)
    return crc


def crc32c(data, value=0, /):
    """CRC-32C of ``data``, continuing ``value``; see mqstore.kernels.kafka_api.KafkaKernels.crc32c."""
    cdef Source source = Source(data)
    cdef uint32_t crc = value & 0xFFFFFFFF
    if source.size < RELEASE_SIZE:
        return mq_crc32c(crc, source.at, source.size)
    with nogil:
        crc = mq_crc32c(crc, source.at, source.size)
    return crc


def crc32_ways(bint castagnoli=False):
    """For tests: {name: function} of every way to compute a checksum that this machine has."""
    cdef int way
    return {
        mq_crc_names[way].decode(): _CrcWay(way, castagnoli) for way in range(MQ_CRC_WAYS) if mq_crc_by(way) != NULL
    }


cdef class _CrcWay:
    cdef int way
    cdef bint castagnoli

    def __init__(self, int way, bint castagnoli):
        self.way, self.castagnoli = way, castagnoli

    def __call__(self, data, uint32_t value=0):
        cdef Source source = Source(data)
        return mq_crc_with(self.way, self.castagnoli, value, source.at, source.size)
