# Writing records into a mapped log file.

cdef struct Head:
    # Numbers of a record that its parts do not tell.
    int32_t queue_id
    int32_t flag
    int64_t queue_offset
    int64_t physical_offset
    int32_t sys_flag
    int64_t born_timestamp_ms
    int64_t store_timestamp_ms
    int32_t reconsume_times
    int64_t prepared_transaction_offset
    int32_t magic


cdef struct Bytes:
    const uint8_t* at
    int64_t size


cdef inline int take_bytes(value, Bytes* part) except -1:
    if type(value) is not bytes:
        raise TypeError(f"bytes are needed, not {type(value).__name__}")
    part.at = <const uint8_t*> PyBytes_AS_STRING(value)
    part.size = PyBytes_GET_SIZE(value)
    return 0


cdef inline int take_host(value, Bytes* part) except -1:
    take_bytes(value, part)
    if part.size != HOST_V4_SIZE and part.size != HOST_V6_SIZE:
        raise UsageError("a host field has 8 or 20 bytes", expected="8 or 20", found=part.size)
    return 0


cdef inline int64_t checked_size(
    int32_t magic, int64_t body, Bytes* topic, Bytes* properties, Bytes* born_host, Bytes* store_host
) except -1:
    """Size of the record; raises what layout.record.encode_record raises for parts that it cannot hold."""
    cdef Marks marks
    cdef int64_t size
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise UsageError("unknown magic code", expected=f"{MAGIC_V1} or {MAGIC_V2}", found=magic)
    if topic.size > (127 if magic == MAGIC_V1 else 32767):
        raise MessageIllegalError("the topic is too long for this version of the record", found=topic.size)
    if properties.size > MAX_PROPERTIES_SIZE:
        raise MessageIllegalError(
            "the properties are too large", expected=f"at most {MAX_PROPERTIES_SIZE} bytes", found=properties.size
        )
    if not read_properties(properties.at, <int32_t> properties.size, &marks):
        raise MessageIllegalError(
            "the properties string is malformed", found="a NUL byte, or a segment without separator"
        )
    size = MIN_RECORD_SIZE - 2 * HOST_V4_SIZE + (magic == MAGIC_V2) + born_host.size + store_host.size
    size += body + topic.size + properties.size
    if size > INT_MAX:
        raise MessageIllegalError("the message is too large", expected=f"at most {INT_MAX} bytes", found=size)
    return size


cdef void write_record(
    uint8_t* p, int64_t size, Head* head, Bytes* body, Bytes* topic, Bytes* properties, Bytes* born_host,
    Bytes* store_host,
) noexcept nogil:
    cdef int32_t v6 = (BORN_HOST_V6 if born_host.size == HOST_V6_SIZE else 0)
    v6 |= (STORE_HOST_V6 if store_host.size == HOST_V6_SIZE else 0)
    cdef uint8_t* start = p
    mq_put32(p + 8, <int32_t> (mq_crc32(0, body.at, body.size) & CRC_MASK))
    mq_put32(p + 12, head.queue_id)
    mq_put32(p + 16, head.flag)
    mq_put64(p + 20, head.queue_offset)
    mq_put64(p + 28, head.physical_offset)
    mq_put32(p + 36, (head.sys_flag & ~V6_BITS) | v6)
    mq_put64(p + 40, head.born_timestamp_ms)
    memcpy(p + 48, born_host.at, born_host.size)
    p += 48 + born_host.size
    mq_put64(p, head.store_timestamp_ms)
    memcpy(p + 8, store_host.at, store_host.size)
    p += 8 + store_host.size
    mq_put32(p, head.reconsume_times)
    mq_put64(p + 4, head.prepared_transaction_offset)
    mq_put32(p + 12, <int32_t> body.size)
    memcpy(p + 16, body.at, body.size)
    p += 16 + body.size
    if head.magic == MAGIC_V1:
        p[0] = <uint8_t> topic.size
        p += 1
    else:
        mq_put16(p, <int32_t> topic.size)
        p += 2
    memcpy(p, topic.at, topic.size)
    p += topic.size
    mq_put16(p, <int32_t> properties.size)
    memcpy(p + 2, properties.at, properties.size)
    mq_publish(start, <int32_t> size, head.magic)


cdef int64_t put_one(
    uint8_t* base, int64_t position, int64_t limit, Head* head, topic, body, properties, born_host, store_host
) except -1:
    """Write one record at ``position``; its size, or 0 when it does not fit."""
    cdef Bytes topic_part, body_part, properties_part, born_part, store_part
    cdef Py_buffer view
    cdef bint is_bytes = type(body) is bytes
    cdef int64_t size
    take_bytes(topic, &topic_part)
    take_bytes(properties, &properties_part)
    take_host(born_host, &born_part)
    take_host(store_host, &store_part)
    if is_bytes:
        take_bytes(body, &body_part)
    else:
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        body_part.at, body_part.size = <const uint8_t*> view.buf, view.len
    try:
        size = checked_size(head.magic, body_part.size, &topic_part, &properties_part, &born_part, &store_part)
        if size + BLANK_SIZE > limit - position:
            return 0
        if size < RELEASE_SIZE:
            write_record(
                base + position, size, head, &body_part, &topic_part, &properties_part, &born_part, &store_part
            )
        else:
            with nogil:
                write_record(
                    base + position, size, head, &body_part, &topic_part, &properties_part, &born_part, &store_part
                )
        return size
    finally:
        if not is_bytes:
            PyBuffer_Release(&view)


cdef int misfit(error) except -1:
    raise UsageError(f"a number does not fit its field of the record: {error}") from error


def put_message(
    buffer, Py_ssize_t position, Py_ssize_t limit, int64_t physical_offset, queue_offset, store_timestamp_ms, topic,
    body, properties, queue_id, flag, sys_flag, born_timestamp_ms, born_host, store_host, reconsume_times,
    prepared_transaction_offset, magic, /,
):
    """Write one record; see mqstore.kernels.api.Kernels.put_message."""
    cdef Head head
    cdef Py_buffer view
    try:
        head.queue_offset = queue_offset
        head.store_timestamp_ms = store_timestamp_ms
        head.queue_id = queue_id
        head.flag = flag
        head.sys_flag = sys_flag
        head.born_timestamp_ms = born_timestamp_ms
        head.reconsume_times = reconsume_times
        head.prepared_transaction_offset = prepared_transaction_offset
        head.magic = magic
    except OverflowError as error:
        misfit(error)
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        check_range(view.len, position, limit, physical_offset)
        head.physical_offset = physical_offset + position
        return put_one(<uint8_t*> view.buf, position, limit, &head, topic, body, properties, born_host, store_host)
    finally:
        PyBuffer_Release(&view)


def put_batch(
    buffer, Py_ssize_t position, Py_ssize_t limit, int64_t physical_offset, store_timestamp_ms,
    queue_offsets, messages, Py_ssize_t start=0, /,
):
    """Write many records; see mqstore.kernels.api.Kernels.put_batch."""
    cdef Target target = Target(buffer)
    cdef list offsets = list(queue_offsets)
    cdef list prepared = list(messages)
    cdef list sizes = []
    cdef Head head
    cdef tuple message
    cdef Py_ssize_t k
    cdef int64_t size
    check_range(target.size, position, limit, physical_offset)
    if len(offsets) != len(prepared) or not 0 <= start <= len(prepared):
        raise UsageError(
            "every message needs a queue offset", expected=len(prepared), found=f"{len(offsets)} from {start}"
        )
    for k in range(start, len(prepared)):
        message = prepared[k]
        if len(message) != 12:
            raise TypeError(f"a prepared message has 12 parts, not {len(message)}")
        try:
            head.store_timestamp_ms = store_timestamp_ms
            head.queue_offset = offsets[k]
            head.queue_id = message[3]
            head.flag = message[4]
            head.sys_flag = message[5]
            head.born_timestamp_ms = message[6]
            head.reconsume_times = message[9]
            head.prepared_transaction_offset = message[10]
            head.magic = message[11]
        except OverflowError as error:
            misfit(error)
        head.physical_offset = physical_offset + position
        size = put_one(
            target.at, position, limit, &head, message[0], message[1], message[2], message[7], message[8]
        )
        if size == 0:
            break
        sizes.append(size)
        position += size
    return sizes
