# Records of one batch into bytes: everything is looked at under the interpreter lock, and written without it.

from cpython.unicode cimport PyUnicode_AsUTF8AndSize


cdef struct Part:
    # Bytes, or none: at is NULL and size -1.
    const uint8_t* at
    int64_t size


cdef struct RecordParts:
    # One record to write.
    Part key
    Part value
    int64_t timestamp_delta_ms
    int64_t first_header
    int64_t size
    int32_t offset_delta
    int32_t headers


cdef struct HeaderParts:
    Part name
    Part value


cdef inline int take_part(value, Part* part) except -1:
    if value is None:
        part.at, part.size = NULL, -1
    elif type(value) is bytes:
        part.at, part.size = <const uint8_t*> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
    else:
        raise TypeError(f"bytes are needed, not {type(value).__name__}")
    return 0


cdef inline int64_t part_size(Part* part) noexcept nogil:
    return mq_varint_size(part.size) + max(part.size, <int64_t> 0)


cdef inline uint8_t* put_part(uint8_t* p, Part* part) noexcept nogil:
    p = mq_put_varint(p, part.size)
    if part.size > 0:
        memcpy(p, part.at, part.size)
        p += part.size
    return p


cdef class Encoding:
    """The records of a batch as pointers into objects that ``held`` keeps alive."""

    cdef list held
    cdef RecordParts* records
    cdef HeaderParts* headers
    cdef int64_t count
    cdef int64_t headers_count
    cdef int64_t headers_capacity

    def __cinit__(self, int64_t count):
        self.held = []
        self.count = count
        self.records = <RecordParts*> calloc(max(count, <int64_t> 1), sizeof(RecordParts))
        if self.records == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.records)
        free(self.headers)

    cdef int add_headers(self, RecordParts* record, pairs) except -1:
        cdef HeaderParts* larger
        cdef HeaderParts* header
        cdef Py_ssize_t length
        cdef const char* text
        cdef tuple copied = tuple(pairs)
        record.first_header = self.headers_count
        for name, value in copied:
            if self.headers_count == self.headers_capacity:
                self.headers_capacity = 2 * self.headers_capacity + 16
                larger = <HeaderParts*> realloc(self.headers, self.headers_capacity * sizeof(HeaderParts))
                if larger == NULL:
                    raise MemoryError()
                self.headers = larger
            header = self.headers + self.headers_count
            if name is None:
                raise MessageIllegalError("a header needs a name")
            if not isinstance(name, str):
                raise TypeError(f"text is needed, not {type(name).__name__}")
            try:
                text = PyUnicode_AsUTF8AndSize(name, &length)
                header.name.at, header.name.size = <const uint8_t*> text, length
            except UnicodeEncodeError:
                name = (<str> name).encode("utf-8", "replace")
                take_part(name, &header.name)
            take_part(value, &header.value)
            self.held.append((name, value))
            self.headers_count += 1
            record.headers += 1
        return 0

    cdef int64_t measure(self) noexcept nogil:
        """Set the size of every record; the size of all, -1 when one is too large."""
        cdef int64_t total = 0
        cdef int64_t row, k, size
        cdef RecordParts* record
        for row in range(self.count):
            record = self.records + row
            size = 1 + mq_varint_size(record.timestamp_delta_ms) + mq_varint_size(record.offset_delta)
            size += part_size(&record.key) + part_size(&record.value) + mq_varint_size(record.headers)
            for k in range(record.first_header, record.first_header + record.headers):
                size += part_size(&self.headers[k].name) + part_size(&self.headers[k].value)
            if size > INT_MAX:
                return -1
            record.size = size
            total += size + mq_varint_size(size)
        return total

    cdef void write(self, uint8_t* p) noexcept nogil:
        cdef int64_t row, k
        cdef RecordParts* record
        for row in range(self.count):
            record = self.records + row
            p = mq_put_varint(p, record.size)
            p[0] = 0
            p = mq_put_varint(p + 1, record.timestamp_delta_ms)
            p = mq_put_varint(p, record.offset_delta)
            p = put_part(put_part(p, &record.key), &record.value)
            p = mq_put_varint(p, record.headers)
            for k in range(record.first_header, record.first_header + record.headers):
                p = put_part(put_part(p, &self.headers[k].name), &self.headers[k].value)


def kafka_encode(keys, values, headers, timestamp_deltas_ms, offset_deltas=None):
    """Records of one batch; see mqstore.kernels.kafka_api.KafkaKernels.kafka_encode."""
    cdef list key_list = list(keys)
    cdef list value_list = list(values)
    cdef list times = list(timestamp_deltas_ms)
    cdef list header_list = None if headers is None else list(headers)
    cdef list offsets = None if offset_deltas is None else list(offset_deltas)
    cdef int64_t count = len(key_list)
    cdef int64_t row, total
    cdef Encoding encoding
    cdef RecordParts* record
    cdef bytearray body
    cdef uint8_t* at
    if (
        len(value_list) != count or len(times) != count or (header_list is not None and len(header_list) != count)
        or (offsets is not None and len(offsets) != count)
    ):
        raise UsageError("every record needs a value, a time, headers and an offset", expected=count)
    encoding = Encoding(count)
    for row in range(count):
        record = encoding.records + row
        take_part(key_list[row], &record.key)
        take_part(value_list[row], &record.value)
        try:
            record.timestamp_delta_ms = times[row]
            record.offset_delta = row if offsets is None else offsets[row]
        except OverflowError as error:
            raise UsageError(f"a number does not fit its field of the record: {error}") from error
        if header_list is not None:
            encoding.add_headers(record, header_list[row])
    with nogil:
        total = encoding.measure()
    if total < 0 or total > INT_MAX:
        raise MessageIllegalError(
            "the record or the batch is too large", expected=f"at most {INT_MAX} bytes", found=total
        )
    body = PyByteArray_FromStringAndSize(NULL, total)
    at = <uint8_t*> PyByteArray_AS_STRING(body)
    with nogil:
        encoding.write(at)
    return body
