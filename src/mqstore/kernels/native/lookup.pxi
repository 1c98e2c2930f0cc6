# Messages by key: candidates from an index file (docs/format/index-file.md), and the record behind a candidate. Both
# read by descriptor, as all readers do, and take the few bytes they need onto the stack; or from the map of a file that
# this process writes, which saves the system calls. A map is used with the interpreter lock held: its owner, another
# thread, can then not close it.

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t pread(int, void*, size_t, int64_t)

cdef enum:
    LOOK_AT_MOST = 64
    GUESS_SIZE = 4096
    # A record that claims more than this is left to the plain path, which allocates by what is there.
    LARGE_SIZE = 0x800000


def key_hash(bytes topic, bytes key, /):
    """The number that a key is filed under; see mqstore.kernels.api.Kernels.key_hash."""
    cdef uint32_t value = java_hash(0, <const uint8_t*> PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic))
    value = value * 31 + c'#'
    return absolute_hash(java_hash(value, <const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)))


cdef class Place:
    """A file to read from: its descriptor, or its bytes before ``end`` in memory."""

    cdef int fd
    cdef Source source
    cdef const uint8_t* at
    cdef int64_t size

    def __cinit__(self, source, int64_t end):
        self.at = NULL
        self.fd = -1
        if isinstance(source, int):
            self.fd = source
        else:
            self.source = Source(source)
            self.at = self.source.at
            self.size = min(end, <int64_t> self.source.size)


cdef inline bint read_at(Place place, uint8_t* into, int64_t position, Py_ssize_t size) noexcept nogil:
    """Whether ``size`` bytes at ``position`` are there, and now ``into``."""
    if place.at == NULL:
        return pread(place.fd, into, size, position) == size
    if not 0 <= position <= place.size - size:
        return False
    memcpy(into, place.at + position, size)
    return True


cdef struct ChainWalk:
    int64_t begin_ms
    int64_t end_ms
    int64_t number
    int64_t found
    int64_t offsets[64]


cdef bint follow_chain(
    Place place, int64_t hash_slots, int64_t max_entries, int64_t key_hash, int64_t most, ChainWalk* walk
) noexcept nogil:
    """Walk on from ``walk.number``; False when something is out of the ordinary."""
    cdef uint8_t head[40]
    cdef uint8_t entry[20]
    cdef IndexFile file
    cdef int64_t entries = HEADER_SIZE + SLOT_SIZE * hash_slots
    cdef int64_t at_least, previous
    if not read_at(place, head, 0, HEADER_SIZE):
        return False
    read_header(&file, head, hash_slots, max_entries)
    if file.index_count > max_entries or file.hash_slot_count < 0 or file.end_physical_offset < 0:
        return False
    if file.begin_timestamp_ms < 0 or file.end_timestamp_ms < 0 or file.begin_physical_offset < 0:
        return False
    if walk.number == 0:
        if file.index_count <= 1 or file.begin_timestamp_ms > walk.end_ms or file.end_timestamp_ms < walk.begin_ms:
            return True
        if not read_at(place, entry, HEADER_SIZE + SLOT_SIZE * (key_hash % hash_slots), SLOT_SIZE):
            return False
        walk.number = max(mq_get32(entry), 0)
    if walk.number >= file.index_count or file.begin_timestamp_ms > MAX_PHYSICAL_OFFSET:
        return False
    while walk.number > 0 and most > 0:
        if not read_at(place, entry, entries + ENTRY_SIZE * walk.number, ENTRY_SIZE):
            return False
        previous = mq_get32(entry + 16)
        if previous >= walk.number:
            return False
        at_least = file.begin_timestamp_ms + 1000 * <int64_t> mq_get32(entry + 12)
        if mq_get32(entry) == key_hash and at_least <= walk.end_ms and at_least + TRUNCATED_MS >= walk.begin_ms:
            walk.offsets[walk.found] = mq_get64(entry + 4)
            walk.found += 1
        walk.number = max(previous, 0)
        most -= 1
    return True


def index_find(
    source, int64_t end, int64_t hash_slots, int64_t max_entries, int64_t key_hash, int64_t number, int64_t most,
    int64_t begin_ms, int64_t end_ms, /,
):
    """Candidates for a key; see mqstore.kernels.api.Kernels.index_find."""
    cdef Place place = Place(source, end)
    cdef ChainWalk walk
    cdef bint is_ordinary
    check_dimensions(LONG_MAX, hash_slots, max_entries)
    if not 0 <= key_hash <= INT_MAX or not 0 <= number <= INT_MAX:
        raise UsageError("no such hash or entry", expected=f"0 to {INT_MAX}", found=(key_hash, number))
    walk.begin_ms, walk.end_ms, walk.number, walk.found = begin_ms, end_ms, number, 0
    most = min(most, <int64_t> LOOK_AT_MOST)
    if place.at == NULL:
        with nogil:
            is_ordinary = follow_chain(place, hash_slots, max_entries, key_hash, most, &walk)
    else:
        is_ordinary = follow_chain(place, hash_slots, max_entries, key_hash, most, &walk)
    return ([walk.offsets[k] for k in range(walk.found)], walk.number) if is_ordinary else None


cdef bint has_key(const uint8_t* properties, Marks* marks, bytes key) noexcept:
    """Whether the key is the record's unique key or one of its keys."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef const uint8_t* blank
    if marks.uniq_key.size == size and memcmp(properties + marks.uniq_key.start, PyBytes_AS_STRING(key), size) == 0:
        return size > 0
    if marks.keys.size <= 0 or size == 0:
        return False
    at = properties + marks.keys.start
    end = at + marks.keys.size
    while at < end:
        blank = <const uint8_t*> memchr(at, c' ', end - at)
        if blank == NULL:
            blank = end
        if blank - at == size and memcmp(at, PyBytes_AS_STRING(key), size) == 0:
            return True
        at = blank + 1
    return False


cdef object matching_record(
    const uint8_t* p, int64_t size, int64_t physical_offset, bytes topic, bytes key, int64_t begin_ms, int64_t end_ms,
    record_type,
):
    cdef Parts parts
    cdef Marks marks
    if judge(p, size, physical_offset, True, &parts, &marks) != VALID:
        return None
    if parts.topic.size != PyBytes_GET_SIZE(topic) or memcmp(
        p + parts.topic.start, PyBytes_AS_STRING(topic), parts.topic.size
    ):
        return False
    if parts.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK or not has_key(p + parts.properties.start, &marks, key):
        return False
    if not begin_ms <= mq_get64(p + parts.store_host - 8) <= end_ms:
        return False
    return record_of(p, &parts, topic, record_type)


cdef object record_in_memory(
    Place place, int64_t position, int64_t room, int64_t physical_offset, bytes topic, bytes key, int64_t begin_ms,
    int64_t end_ms, record_type,
):
    cdef int64_t size
    room = min(room, place.size - position)
    if position < 0 or room < 4:
        return None
    size = mq_get32(place.at + position)
    if size <= 0 or size > room or size > LARGE_SIZE:
        return None
    return matching_record(
        place.at + position, size, physical_offset, topic, key, begin_ms, end_ms, record_type
    )


def record_with_key(
    source, int64_t end, int64_t position, int64_t room, int64_t physical_offset, bytes topic, bytes key,
    int64_t begin_ms, int64_t end_ms, record_type, /,
):
    """The record, if it bears the key; see mqstore.kernels.api.Kernels.record_with_key."""
    cdef Place place = Place(source, end)
    cdef uint8_t head[4096]
    cdef bytes whole
    cdef Py_ssize_t got
    cdef int64_t size
    cdef char* body
    if place.at != NULL:
        return record_in_memory(
            place, position, room, physical_offset, topic, key, begin_ms, end_ms, record_type
        )
    with nogil:
        got = pread(place.fd, head, min(<int64_t> GUESS_SIZE, room), position) if position >= 0 and room >= 4 else -1
    if got < 4:
        return None
    size = mq_get32(head)
    if size <= 0 or size > room or size > LARGE_SIZE:
        return None
    if size <= got:
        return matching_record(head, size, physical_offset, topic, key, begin_ms, end_ms, record_type)
    whole = PyBytes_FromStringAndSize(NULL, size)
    body = PyBytes_AS_STRING(whole)
    with nogil:
        got = pread(place.fd, body, size, position)
    if got != size:
        return None
    return matching_record(
        <const uint8_t*> body, size, physical_offset, topic, key, begin_ms, end_ms, record_type
    )
