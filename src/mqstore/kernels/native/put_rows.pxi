# Rows of Arrow columns into a mapped log file, many at once and without a Python object for any of them.

cdef struct TextColumn:
    # offsets[k] to offsets[k + 1] is row k; a row that is null has a bit 0. No validity: no row is null.
    const int64_t* offsets
    const uint8_t* data
    const uint8_t* validity


cdef class Rows:
    """The columns of a table, held and checked: no offset leads outside of its data."""

    cdef list held
    cdef Py_ssize_t count
    cdef int64_t topics
    cdef TextColumn topic
    cdef TextColumn body
    cdef TextColumn tags
    cdef TextColumn keys
    cdef const int32_t* topic_of
    cdef const int32_t* queue_of
    cdef bint keys_first

    def __cinit__(self, columns):
        self.held = []
        self.count = columns.size
        self.topics = len(columns.topics[0]) // 8 - 1
        if self.count < 0 or self.topics < 0:
            raise UsageError("a table has no fewer than 0 rows", found=(self.count, self.topics))
        self.text(columns.topics, self.topics, &self.topic)
        self.text(columns.body, self.count, &self.body)
        self.text(columns.tags, self.count, &self.tags)
        self.text(columns.keys, self.count, &self.keys)
        self.topic_of = <const int32_t*> self.buffer(columns.topic_of, 4 * self.count)
        self.queue_of = <const int32_t*> self.buffer(columns.queue_of, 4 * self.count)
        self.keys_first = columns.keys_first

    cdef const uint8_t* buffer(self, given, int64_t least) except? NULL:
        cdef Source source = Source(given)
        if source.size < least:
            raise UsageError("a column is shorter than the table", expected=least, found=source.size)
        self.held.append(source)
        return source.at

    cdef int text(self, given, int64_t count, TextColumn* column) except -1:
        cdef int64_t k, size
        column.offsets = NULL
        if given is None:
            return 0
        offsets, data, validity = given
        column.offsets = <const int64_t*> self.buffer(offsets, 8 * (count + 1))
        column.data = self.buffer(data, 0)
        size = (<Source> self.held[len(self.held) - 1]).size
        column.validity = NULL if validity is None else self.buffer(validity, (count + 7) // 8)
        for k in range(count):
            if not 0 <= column.offsets[k] <= column.offsets[k + 1] <= size:
                raise UsageError("an offset leads outside of its column", offset=k, found=column.offsets[k + 1])
        return 0


cdef inline Bytes text_at(TextColumn* column, int64_t row) noexcept nogil:
    """The text of a row; a size of -1 for null."""
    cdef Bytes part
    part.at, part.size = NULL, -1
    if column.offsets == NULL or (column.validity != NULL and not column.validity[row >> 3] >> (row & 7) & 1):
        return part
    part.at = column.data + column.offsets[row]
    part.size = column.offsets[row + 1] - column.offsets[row]
    return part


cdef inline bint is_value(Bytes* part) noexcept nogil:
    """Whether the text is null, or one that reads back as it is."""
    if part.size < 0:
        return True
    if part.size == 0 or part.size > MAX_PROPERTIES_SIZE:
        return False
    return mq_next_mark(part.at, 0, <int32_t> part.size) == part.size


cdef inline int64_t properties_size(Bytes* tags, Bytes* keys) noexcept nogil:
    cdef int64_t size = 0
    if tags.size >= 0:
        size += 5 + tags.size
    if keys.size >= 0:
        size += 5 + keys.size
    return size + (tags.size >= 0 and keys.size >= 0)


cdef inline int64_t row_size(Rows rows, int64_t row, int64_t hosts) noexcept nogil:
    cdef Bytes tags = text_at(&rows.tags, row)
    cdef Bytes keys = text_at(&rows.keys, row)
    cdef int64_t size = MIN_RECORD_SIZE - 2 * HOST_V4_SIZE + hosts + properties_size(&tags, &keys)
    size += text_at(&rows.topic, rows.topic_of[row]).size
    return size + text_at(&rows.body, row).size


cdef bint is_row_ordinary(Rows rows, int64_t row, int64_t max_body, int64_t max_queue) noexcept nogil:
    cdef Bytes part = text_at(&rows.body, row)
    cdef Bytes keys = text_at(&rows.keys, row)
    cdef Bytes topic
    if part.size < 0 or part.size > max_body or not -1 <= rows.queue_of[row] <= max_queue:
        return False
    if not 0 <= rows.topic_of[row] < rows.topics:
        return False
    topic = text_at(&rows.topic, rows.topic_of[row])
    if not 0 < topic.size <= 127:
        return False
    part = text_at(&rows.tags, row)
    if not is_value(&part) or not is_value(&keys):
        return False
    # Keys are parted by one blank; none may be empty.
    if keys.size > 0 and (keys.at[0] == 32 or keys.at[keys.size - 1] == 32):
        return False
    return properties_size(&part, &keys) <= MAX_PROPERTIES_SIZE


def measure_rows(columns, int64_t max_body, int64_t max_queue, int64_t hosts_size, /):
    """The first row out of the ordinary, and the size of all; see mqstore.kernels.api.Kernels.measure_rows."""
    cdef Rows rows = Rows(columns)
    cdef int64_t row = 0
    cdef int64_t total = 0
    cdef int64_t largest = 0
    cdef int64_t size
    with nogil:
        while row < rows.count and is_row_ordinary(rows, row, max_body, max_queue):
            size = row_size(rows, row, hosts_size)
            total += size
            largest = max(largest, size)
            row += 1
    return (row if row < rows.count else -1), total, largest


cdef inline uint8_t* put_property(uint8_t* p, const char* name, Bytes* value) noexcept nogil:
    memcpy(p, name, 4)
    p[4] = 1
    memcpy(p + 5, value.at, value.size)
    return p + 5 + value.size


cdef int64_t write_row(
    uint8_t* p, Rows rows, int64_t row, int64_t size, Head* head, Bytes* host, uint8_t* scratch
) noexcept nogil:
    cdef Bytes body = text_at(&rows.body, row)
    cdef Bytes topic = text_at(&rows.topic, rows.topic_of[row])
    cdef Bytes tags = text_at(&rows.tags, row)
    cdef Bytes keys = text_at(&rows.keys, row)
    cdef Bytes properties
    cdef uint8_t* end = scratch
    if keys.size >= 0 and (rows.keys_first or tags.size < 0):
        end = put_property(end, b"KEYS", &keys)
        if tags.size >= 0:
            end[0] = 2
            end = put_property(end + 1, b"TAGS", &tags)
    elif tags.size >= 0:
        end = put_property(end, b"TAGS", &tags)
        if keys.size >= 0:
            end[0] = 2
            end = put_property(end + 1, b"KEYS", &keys)
    properties.at, properties.size = scratch, end - scratch
    write_record(p, size, head, &body, &topic, &properties, host, host)
    return size


def put_rows(
    buffer, int64_t position, int64_t limit, int64_t physical_offset, int64_t store_timestamp_ms, bytes host, columns,
    int64_t start, int64_t stop, queue_base, queue_counts, turns, next_offsets, /,
):
    """Write rows one behind the other; see mqstore.kernels.api.Kernels.put_rows."""
    cdef Target target = Target(buffer)
    cdef Rows rows = Rows(columns)
    cdef const int64_t* base = <const int64_t*> rows.buffer(queue_base, 8 * rows.topics)
    cdef Target count_target = Target(queue_counts)
    cdef int64_t* counts = <int64_t*> count_target.at
    cdef Target turn_target = Target(turns)
    cdef Target offset_target = Target(next_offsets)
    cdef int64_t* turn = <int64_t*> turn_target.at
    cdef int64_t* following = <int64_t*> offset_target.at
    cdef int64_t queues = offset_target.size // 8
    cdef int64_t row = start
    cdef int64_t last = -1
    cdef int64_t size, topic, queue
    cdef Bytes host_part
    cdef Head head
    cdef uint8_t* scratch
    cdef bint is_known = True
    check_range(target.size, position, limit, physical_offset)
    take_host(host, &host_part)
    if not 0 <= start <= stop <= rows.count or min(turn_target.size, count_target.size) < 8 * rows.topics:
        raise UsageError("no such rows", expected=f"0 to {rows.count}", found=(start, stop))
    head.flag = head.sys_flag = head.reconsume_times = 0
    head.prepared_transaction_offset = 0
    head.magic = MAGIC_V1
    head.born_timestamp_ms = head.store_timestamp_ms = store_timestamp_ms
    scratch = <uint8_t*> malloc(MAX_PROPERTIES_SIZE + 1)
    if scratch == NULL:
        raise MemoryError()
    with nogil:
        while row < stop:
            if not is_row_ordinary(rows, row, INT_MAX // 2, INT_MAX - 1):
                is_known = False
                break
            size = row_size(rows, row, 2 * host_part.size)
            if size + BLANK_SIZE > limit - position:
                break
            topic, queue = rows.topic_of[row], rows.queue_of[row]
            if queue < 0:
                is_known = counts[topic] > 0
                queue = turn[topic] % counts[topic] if is_known and turn[topic] >= 0 else 0
                turn[topic] += 1
            if not is_known or base[topic] < 0 or base[topic] + queue >= queues:
                is_known = False
                break
            counts[topic] = max(counts[topic], queue + 1)
            head.queue_id = <int32_t> queue
            head.queue_offset = following[base[topic] + queue]
            head.physical_offset = physical_offset + position
            following[base[topic] + queue] += 1
            last = position
            position += write_row(target.at + position, rows, row, size, &head, &host_part, scratch)
            row += 1
    free(scratch)
    if not is_known:
        raise UsageError("a row that was not measured", offset=row, hint="measure_rows tells which rows can be put")
    return row, position, last
