# Reading a queue: which bytes of the log to fetch for its next units, and the messages in those bytes.


cdef struct Unit:
    int64_t physical_offset
    int32_t size
    int32_t code


cdef inline Unit unit_at(const uint8_t* units, Py_ssize_t number) noexcept nogil:
    cdef const uint8_t* p = units + number * UNIT_SIZE
    cdef Unit unit
    unit.physical_offset = mq_get64(p)
    unit.size = mq_get32(p + 8)
    unit.code = <int32_t> mq_get64(p + 12)
    return unit


cdef inline bint is_wanted(Unit* unit, const int64_t* codes, int64_t count, bint all_codes) noexcept nogil:
    """Whether the unit points at a record and its tag may be one of those asked for."""
    cdef int64_t k
    if unit.physical_offset < 0 or unit.size <= 0 or unit.physical_offset > MAX_PHYSICAL_OFFSET:
        return False
    for k in range(count):
        if codes[k] == unit.code:
            return True
    return all_codes


def unit_span(
    units, Py_ssize_t first, Py_ssize_t most, tag_codes, int64_t gap_bytes, int64_t span_bytes, /,
):
    """Where the records of the next units lie; see mqstore.kernels.api.Kernels.unit_span."""
    cdef Source source = Source(units)
    cdef Py_ssize_t total = source.size // UNIT_SIZE
    cdef int64_t code_count = 0
    cdef int64_t* codes
    cdef int64_t start = -1
    cdef int64_t end = -1
    cdef Unit unit
    cdef bint all_codes = tag_codes is None
    check_rows(total, first, total)
    codes = numbers_of(() if all_codes else tag_codes, &code_count)
    while first < total and most > 0:
        unit = unit_at(source.at, first)
        first += 1
        if not is_wanted(&unit, codes, code_count, all_codes):
            continue
        most -= 1
        if start < 0:
            start, end = unit.physical_offset, unit.physical_offset + unit.size
        elif 0 <= unit.physical_offset - end <= gap_bytes and unit.physical_offset + unit.size - start <= span_bytes:
            end = unit.physical_offset + unit.size
        else:
            break
    free(codes)
    return (start, end) if start >= 0 else None


def take_messages(
    units, Py_ssize_t first, int64_t queue_offset, data, int64_t data_offset, bytes topic, int64_t queue_id, tags,
    tag_codes, Py_ssize_t most, int64_t most_bytes, list messages, record_type, /,
):
    """The messages of the next units; see mqstore.kernels.api.Kernels.take_messages."""
    cdef Source source = Source(units)
    cdef Source log = Source(data)
    cdef Py_ssize_t total = source.size // UNIT_SIZE
    cdef Py_ssize_t number = first
    cdef int64_t code_count = 0
    cdef int64_t used = 0
    cdef int64_t at
    cdef int64_t* codes
    cdef int wanted
    cdef bint all_codes = tags is None
    cdef Unit unit
    cdef Parts parts
    cdef Marks marks
    cdef Text name = text_of(topic)
    check_rows(total, first, total)
    codes = numbers_of(() if all_codes else tag_codes, &code_count)
    try:
        while number < total and PyList_GET_SIZE(messages) < most:
            unit = unit_at(source.at, number)
            at = unit.physical_offset - data_offset
            if not is_within(&unit, data_offset, log.size):
                break
            if is_wanted(&unit, codes, code_count, all_codes):
                if PyList_GET_SIZE(messages) > 0 and used + unit.size > most_bytes:
                    break
                if judge(log.at + at, unit.size, unit.physical_offset, False, &parts, &marks) != VALID:
                    break
                if not is_of_queue(log.at + at, &parts, unit.size, name, queue_id, queue_offset + number - first):
                    break
                wanted = 1 if all_codes else has_tag(log.at + at + parts.properties.start, &marks, tags)
                if wanted < 0:
                    break
                if wanted:
                    messages.append(record_of(log.at + at, &parts, topic, record_type))
                    used += unit.size
            number += 1
    finally:
        free(codes)
    return number - first, used


cdef struct Text:
    const char* at
    Py_ssize_t size


cdef inline Text text_of(bytes text):
    """Where ``text`` lies, for as long as somebody holds it."""
    cdef Text found
    found.at, found.size = PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
    return found


cdef inline bint is_of_queue(
    const uint8_t* p, Parts* parts, int32_t size, Text topic, int64_t queue_id, int64_t queue_offset
) noexcept nogil:
    return (
        parts.size == size and mq_get32(p + 12) == queue_id and mq_get64(p + 20) == queue_offset
        and parts.topic.size == topic.size and memcmp(p + parts.topic.start, topic.at, topic.size) == 0
    )


cdef inline bint is_within(Unit* unit, int64_t data_offset, Py_ssize_t data_size) noexcept nogil:
    """Whether the record that the unit points at lies in the data."""
    return (
        unit.size > 0 and unit.physical_offset >= data_offset
        and unit.physical_offset - data_offset <= data_size - unit.size
    )


def scan_units(
    units, Py_ssize_t first, int64_t queue_offset, data, int64_t data_offset, bytes topic, int64_t queue_id, /,
):
    """The records of the next units as LogColumns; see mqstore.kernels.api.Kernels.scan_units."""
    cdef Source source = Source(units)
    cdef Source log = Source(data)
    cdef Py_ssize_t total = source.size // UNIT_SIZE
    cdef Py_ssize_t number = first
    cdef int64_t rows = 0
    cdef int64_t end = 0
    cdef int64_t capacity, at
    cdef Text name = text_of(topic)
    cdef Columns columns
    cdef bytearray arena
    cdef Unit unit
    cdef Parts parts
    cdef Marks marks
    check_rows(total, first, total)
    while number < total:
        unit = unit_at(source.at, number)
        if not is_within(&unit, data_offset, log.size):
            break
        number += 1
    capacity = padded(number - first)
    memset(&columns, 0, sizeof(Columns))
    arena = grown(None, &columns, 0, capacity)
    with nogil:
        while first + rows < number:
            unit = unit_at(source.at, first + rows)
            at = unit.physical_offset - data_offset
            if judge(log.at + at, unit.size, unit.physical_offset, False, &parts, &marks) != VALID:
                break
            if not is_of_queue(log.at + at, &parts, unit.size, name, queue_id, queue_offset + rows):
                break
            put_row(&columns, rows, log.at + at, at, &parts, &marks)
            end = at + unit.size
            rows += 1
    return LogColumns(arena, capacity, rows, data_offset, end, STOP_END, 0, 0, 0)


cdef enum:
    PLACE_SIZE = 40


cdef struct RecordPlace:
    int64_t physical_offset
    int64_t size
    int64_t queue_offset
    int64_t queue
    int64_t position


cdef struct QueueName:
    Text topic
    int64_t queue_id


cdef QueueName* names_of(queues, list topics, int64_t* count) except NULL:
    """The queues in new memory, to be freed; their topics lie in ``topics``, for as long as somebody holds it."""
    cdef list pairs = list(queues)
    cdef QueueName* names = <QueueName*> calloc(len(pairs) + 1, sizeof(QueueName))
    cdef bytes topic
    if names == NULL:
        raise MemoryError()
    try:
        for topic, queue_id in pairs:
            topics.append(topic)
            names[count[0]].topic = text_of(topic)
            names[count[0]].queue_id = queue_id
            count[0] += 1
    except BaseException:
        free(names)
        raise
    return names


cdef inline bint is_record_of(
    Source log, RecordPlace* place, const QueueName* names, int64_t name_count, bint check_crc, Parts* parts, Marks* marks
) noexcept nogil:
    """Whether the record that the place is for is there."""
    cdef const uint8_t* p
    if not inside(log.size, place.position, place.size) or place.size > INT_MAX:
        return False
    if not 0 <= place.physical_offset <= MAX_PHYSICAL_OFFSET or not 0 <= place.queue < name_count:
        return False
    p = log.at + place.position
    return judge(p, place.size, place.physical_offset, check_crc, parts, marks) == VALID and is_of_queue(
        p, parts, <int32_t> place.size, names[place.queue].topic, names[place.queue].queue_id, place.queue_offset
    )


def scan_at(buffer, places, queues, *, bint check_crc=True):
    """The records at given places as LogColumns; see mqstore.kernels.api.Kernels.scan_at."""
    cdef Source log = Source(buffer)
    cdef Source wanted = Source(places)
    cdef int64_t count = wanted.size // PLACE_SIZE
    cdef int64_t capacity = padded(count)
    cdef int64_t name_count = 0
    cdef int64_t number, rows = 0, end = 0
    cdef list topics = []
    cdef QueueName* names = names_of(queues, topics, &name_count)
    cdef Columns columns
    cdef RecordPlace place
    cdef Parts parts
    cdef Marks marks
    cdef bytearray arena, found
    cdef char* is_found
    try:
        found = PyByteArray_FromStringAndSize(NULL, count)
        is_found = PyByteArray_AS_STRING(found)
        memset(&columns, 0, sizeof(Columns))
        arena = grown(None, &columns, 0, capacity)
        with nogil:
            for number in range(count):
                memcpy(&place, wanted.at + number * PLACE_SIZE, PLACE_SIZE)
                is_found[number] = is_record_of(log, &place, names, name_count, check_crc, &parts, &marks)
                if is_found[number]:
                    put_row(&columns, rows, log.at + place.position, place.position, &parts, &marks)
                    end = place.position + place.size
                    rows += 1
    finally:
        free(names)
    return LogColumns(arena, capacity, rows, -1, end, STOP_END, 0, 0, 0), found


cdef int has_tag(const uint8_t* properties, Marks* marks, tags) except -2:
    """Whether the record's tag is one of ``tags`` (UTF-8); -1 for text that may be mended on reading."""
    if marks.tags.size < 0:
        return 0
    if not mq_is_ascii(properties + marks.tags.start, marks.tags.size):
        return -1
    return (<const char*> properties + marks.tags.start)[:marks.tags.size] in tags


cdef object record_of(const uint8_t* p, Parts* parts, bytes topic, record_type):
    """A layout.record.Record, made without its constructor."""
    cdef object record = mq_new_tuple(record_type, 17)
    cdef const char* text = <const char*> p
    cdef int32_t born_size = HOST_V6_SIZE if parts.sys_flag & BORN_HOST_V6 else HOST_V4_SIZE
    cdef int32_t store_size = HOST_V6_SIZE if parts.sys_flag & STORE_HOST_V6 else HOST_V4_SIZE
    cdef int32_t stored_at = 48 + born_size
    cdef int32_t after = stored_at + 8 + store_size
    set_item(record, 0, mq_get64(p + 28))
    set_item(record, 1, parts.size)
    set_item(record, 2, parts.magic)
    set_item(record, 3, mq_get32(p + 8))
    set_item(record, 4, mq_get32(p + 12))
    set_item(record, 5, mq_get32(p + 16))
    set_item(record, 6, mq_get64(p + 20))
    set_item(record, 7, parts.sys_flag)
    set_item(record, 8, mq_get64(p + 40))
    set_item(record, 9, text[48 : stored_at])
    set_item(record, 10, mq_get64(p + stored_at))
    set_item(record, 11, text[stored_at + 8 : after])
    set_item(record, 12, mq_get32(p + after))
    set_item(record, 13, mq_get64(p + after + 4))
    set_item(record, 14, text[parts.body.start : parts.body.start + parts.body.size])
    set_item(record, 15, topic)
    set_item(record, 16, text[parts.properties.start : parts.properties.start + parts.properties.size])
    return record
