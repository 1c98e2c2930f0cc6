# Queue units of scanned records, and filters over units.

cdef object _new_run = tuple.__new__
cdef uint64_t _seed = <uint64_t> <int64_t> hash("mqstore") ^ <uint64_t> <int64_t> hash("topics")

cdef enum:
    # Beyond this many rows the interpreter lock is released.
    RELEASE_ROWS = 64


cdef struct Run:
    int64_t topic_position
    int32_t topic_size
    int32_t queue_id
    int64_t first_queue_offset
    int64_t last_queue_offset
    int64_t min_store_timestamp_ms
    int64_t max_store_timestamp_ms
    int64_t count
    int64_t size_bytes
    uint8_t* out


cdef struct Runs:
    # ``of_row`` tells the run of each row (-1: none); ``latest`` is an open hash table of the last run (number + 1)
    # of each queue, with ``mask`` + 1 places, at most half of them used.
    Run* runs
    int64_t count
    int32_t* of_row
    int32_t* latest
    uint64_t mask


cdef inline int32_t* place_of(Runs* found, Columns* columns, const uint8_t* base, int64_t row) noexcept nogil:
    """The place in ``latest`` for the queue of ``row``: holding its last run, or empty."""
    cdef const uint8_t* topic = base + columns.topic_position[row]
    cdef int32_t size = columns.topic_size[row]
    cdef int32_t queue_id = columns.queue_id[row]
    cdef uint64_t at = mq_hash(_seed ^ <uint32_t> queue_id, topic, size) & found.mask
    cdef Run* run
    while found.latest[at] != 0:
        run = found.runs + (found.latest[at] - 1)
        if run.queue_id == queue_id and run.topic_size == size and memcmp(
            base + run.topic_position, topic, size
        ) == 0:
            break
        at = (at + 1) & found.mask
    return found.latest + at


cdef inline bint has_unit(int32_t sys_flag) noexcept nogil:
    cdef int32_t kind = sys_flag & TRANSACTION_MASK
    return kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK


cdef int assign_runs(
    Runs* found, Columns* columns, const uint8_t* base, int64_t start, int64_t stop
) noexcept nogil:
    cdef int64_t row
    cdef int64_t time, queue_offset
    cdef int32_t* place
    cdef Run* run
    for row in range(start, stop):
        found.of_row[row - start] = -1
        if not has_unit(columns.sys_flag[row]):
            continue
        place = place_of(found, columns, base, row)
        queue_offset = columns.queue_offset[row]
        time = columns.store_timestamp_ms[row]
        run = NULL if place[0] == 0 else found.runs + (place[0] - 1)
        if run == NULL or queue_offset == LONG_MIN or queue_offset - 1 != run.last_queue_offset:
            run = found.runs + found.count
            found.count += 1
            place[0] = <int32_t> found.count
            run.topic_position, run.topic_size = columns.topic_position[row], columns.topic_size[row]
            run.queue_id, run.first_queue_offset = columns.queue_id[row], queue_offset
            run.min_store_timestamp_ms = run.max_store_timestamp_ms = time
            run.count = run.size_bytes = 0
        run.last_queue_offset = queue_offset
        run.count += 1
        run.size_bytes += columns.size[row]
        run.min_store_timestamp_ms = min(run.min_store_timestamp_ms, time)
        run.max_store_timestamp_ms = max(run.max_store_timestamp_ms, time)
        found.of_row[row - start] = <int32_t> (run - found.runs)
    return 0


cdef int32_t delay_level(const uint8_t* p, Span text, int32_t highest) noexcept nogil:
    """The level that the property DELAY asks for, at most ``highest``; 0 for what is no positive 32-bit number."""
    cdef int32_t at = text.start
    cdef int32_t end = text.start + text.size
    cdef int64_t level = 0
    if text.size > 0 and (p[at] == c'+' or p[at] == c'-'):
        at += 1
    if end - at < 1 or end - at > 10 or p[text.start] == c'-':
        return 0
    for at in range(at, end):
        if p[at] < c'0' or p[at] > c'9':
            return 0
        level = level * 10 + (p[at] - c'0')
    if level > INT_MAX:
        return 0
    return <int32_t> min(level, <int64_t> highest)


cdef Span find_value(const uint8_t* p, int32_t size, const uint8_t* name, int32_t name_size) noexcept nogil:
    """The value of a property: the last that is not empty; size -1 if there is none."""
    cdef Span found, this_name, value
    cdef int32_t at = 0
    cdef bint damaged = False
    found.start, found.size = 0, -1
    while next_pair(p, size, &at, &this_name, &value, &damaged):
        if value.size > 0 and this_name.size == name_size and memcmp(p + this_name.start, name, name_size) == 0:
            found = value
    return found


cdef int64_t unit_code(
    Columns* columns, const uint8_t* base, int64_t row, const int64_t* delay_ms, int32_t highest
) noexcept nogil:
    cdef const uint8_t* properties
    cdef Span delay
    cdef int32_t level
    if columns.topic_size[row] == 19 and memcmp(base + columns.topic_position[row], b"SCHEDULE_TOPIC_XXXX", 19) == 0:
        properties = base + columns.properties_position[row]
        delay = find_value(properties, columns.properties_size[row], b"DELAY", 5)
        level = delay_level(properties, delay, highest)
        if level > 0:
            return <int64_t> (<uint64_t> columns.store_timestamp_ms[row] + <uint64_t> delay_ms[level])
    if columns.tags_size[row] <= 0:
        return 0
    return <int32_t> java_hash(0, base + columns.tags_position[row], columns.tags_size[row])


cdef void write_units(
    Runs* found, Columns* columns, const uint8_t* base, int64_t start, int64_t stop, const int64_t* delay_ms,
    int32_t highest,
) noexcept nogil:
    cdef int64_t row
    cdef Run* run
    for row in range(start, stop):
        if found.of_row[row - start] < 0:
            continue
        run = found.runs + found.of_row[row - start]
        mq_put64(run.out, columns.own_offset[row])
        mq_put32(run.out + 8, columns.size[row])
        mq_put64(run.out + 12, unit_code(columns, base, row, delay_ms, highest))
        run.out += UNIT_SIZE


cdef int check_parts(Columns* columns, Py_ssize_t size, int64_t start, int64_t stop) except -1:
    """Raise unless topics, properties, tags and keys of the rows lie in a buffer of ``size`` bytes."""
    cdef int64_t row
    cdef bint right = True
    for row in range(start, stop):
        right &= inside(size, columns.topic_position[row], columns.topic_size[row])
        right &= inside(size, columns.properties_position[row], columns.properties_size[row])
        right &= columns.properties_size[row] <= MAX_PROPERTIES_SIZE
        right &= inside(size, columns.tags_position[row], max(columns.tags_size[row], 0))
        right &= inside(size, columns.keys_position[row], max(columns.keys_size[row], 0))
        right &= inside(size, columns.uniq_key_position[row], max(columns.uniq_key_size[row], 0))
    return 0 if right else foreign_columns(size)


cdef int64_t* numbers_of(sequence, int64_t* count) except NULL:
    """A copy of a sequence of 64-bit numbers, to be freed."""
    cdef list values = list(sequence)
    cdef int64_t* copied = <int64_t*> malloc((len(values) + 1) * sizeof(int64_t))
    cdef Py_ssize_t k
    if copied == NULL:
        raise MemoryError()
    try:
        for k in range(len(values)):
            copied[k] = values[k]
    except BaseException:
        free(copied)
        raise
    count[0] = len(values)
    return copied


cdef list collect_runs(
    Runs* found, Columns* columns, const uint8_t* base, int64_t start, int64_t stop, const int64_t* delay_ms,
    int32_t highest,
):
    cdef list collected = []
    cdef Run* run
    cdef int64_t k
    cdef bytes units
    if stop - start > RELEASE_ROWS:
        with nogil:
            assign_runs(found, columns, base, start, stop)
    else:
        assign_runs(found, columns, base, start, stop)
    for k in range(found.count):
        run = found.runs + k
        units = PyBytes_FromStringAndSize(NULL, run.count * UNIT_SIZE)
        run.out = <uint8_t*> PyBytes_AS_STRING(units)
        collected.append(_new_run(QueueRun, (
            PyBytes_FromStringAndSize(<const char*> base + run.topic_position, run.topic_size),
            run.queue_id,
            run.first_queue_offset,
            units,
            run.min_store_timestamp_ms,
            run.max_store_timestamp_ms,
            run.size_bytes,
        )))
    if stop - start > RELEASE_ROWS:
        with nogil:
            write_units(found, columns, base, start, stop, delay_ms, highest)
    else:
        write_units(found, columns, base, start, stop, delay_ms, highest)
    return collected


def queue_runs(buffer, columns, Py_ssize_t start, Py_ssize_t stop, delay_ms):
    """Queue units in runs; see mqstore.kernels.api.Kernels.queue_runs."""
    cdef Source source = Source(buffer)
    cdef Columns rows
    cdef bytearray arena = open_columns(columns, &rows)
    cdef Runs found
    cdef int64_t* delays = NULL
    cdef int64_t levels = 0
    cdef Py_ssize_t count = stop - start
    check_rows(rows.count, start, stop)
    check_parts(&rows, source.size, start, stop)
    if count == 0:
        return []
    found.mask = 4
    while found.mask < <uint64_t> (2 * count):
        found.mask *= 2
    found.count = 0
    found.runs = <Run*> malloc(count * sizeof(Run))
    found.of_row = <int32_t*> malloc(count * sizeof(int32_t))
    found.latest = <int32_t*> calloc(found.mask, sizeof(int32_t))
    found.mask -= 1
    try:
        if found.runs == NULL or found.of_row == NULL or found.latest == NULL:
            raise MemoryError()
        delays = numbers_of(delay_ms, &levels)
        return collect_runs(
            &found, &rows, source.at, start, stop, delays, <int32_t> min(max(levels - 1, 0), <int64_t> INT_MAX)
        )
    finally:
        free(delays)
        free(found.runs)
        free(found.of_row)
        free(found.latest)


cdef int64_t matching_units(
    const uint8_t* unit, int64_t count, const int64_t* codes, int64_t code_count, bint all_codes,
    int64_t min_physical_offset, int32_t* numbers,
) noexcept nogil:
    cdef int64_t found = 0
    cdef int64_t number, k, physical_offset
    cdef int32_t size, code
    for number in range(count):
        physical_offset = mq_get64(unit)
        size = mq_get32(unit + 8)
        code = mq_get32(unit + 16)
        if (
            size > 0 and physical_offset >= 0 and physical_offset >= min_physical_offset
            and not (physical_offset == 0 and size == INT_MAX and mq_get64(unit + 12) == 0)
        ):
            k = 0
            while k < code_count and codes[k] != code:
                k += 1
            if all_codes or k < code_count:
                numbers[found] = <int32_t> number
                found += 1
        unit += UNIT_SIZE
    return found


def select_units(units, tag_codes=None, int64_t min_physical_offset=0):
    """Numbers of the units that match; see mqstore.kernels.api.Kernels.select_units."""
    cdef Source source = Source(units)
    cdef int64_t count = source.size // UNIT_SIZE
    cdef int64_t code_count = 0
    cdef int64_t found
    cdef int64_t* codes
    cdef bytearray numbers = PyByteArray_FromStringAndSize(NULL, count * 4)
    cdef int32_t* out = <int32_t*> PyByteArray_AS_STRING(numbers)
    cdef bint all_codes = tag_codes is None
    if not all_codes and any(not -INT_MAX - 1 <= code <= INT_MAX for code in tag_codes):
        raise UsageError("tag codes are signed 32-bit numbers", found=sorted(tag_codes))
    codes = numbers_of(() if all_codes else tag_codes, &code_count)
    with nogil:
        found = matching_units(source.at, count, codes, code_count, all_codes, min_physical_offset, out)
        free(codes)
    return memoryview(numbers)[: found * 4].cast("i")
