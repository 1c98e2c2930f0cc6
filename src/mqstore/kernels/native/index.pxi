# Keys of scanned records into index files (docs/format/index-file.md).

cdef enum:
    HEADER_SIZE = 40
    SLOT_SIZE = 4
    ENTRY_SIZE = 20
    # A key that is to be filed: hash, physical offset, store time in ms.
    KEY_SIZE = 20
    # What an entry's time may lack, because it counts whole seconds.
    TRUNCATED_MS = 999
    # How many keys ahead a slot is asked for.
    AHEAD = 16


cdef struct IndexFile:
    uint8_t* base
    int64_t hash_slots
    int64_t max_entries
    int64_t begin_timestamp_ms
    int64_t end_timestamp_ms
    int64_t begin_physical_offset
    int64_t end_physical_offset
    int32_t hash_slot_count
    int32_t index_count


cdef int check_dimensions(Py_ssize_t size, int64_t hash_slots, int64_t max_entries) except -1:
    if (
        not 1 <= hash_slots <= INT_MAX or not 0 <= max_entries <= INT_MAX
        or HEADER_SIZE + SLOT_SIZE * hash_slots + ENTRY_SIZE * max_entries > size
    ):
        raise UsageError(
            "the index file is smaller than its dimensions", expected=f"{hash_slots} slots, {max_entries} entries",
            found=size,
        )
    return 0


cdef void read_header(IndexFile* file, uint8_t* base, int64_t hash_slots, int64_t max_entries) noexcept nogil:
    file.base, file.hash_slots, file.max_entries = base, hash_slots, max_entries
    file.begin_timestamp_ms, file.end_timestamp_ms = mq_get64(base), mq_get64(base + 8)
    file.begin_physical_offset, file.end_physical_offset = mq_get64(base + 16), mq_get64(base + 24)
    file.hash_slot_count = mq_get32(base + 32)
    file.index_count = max(mq_get32(base + 36), 1)


cdef void write_header(IndexFile* file) noexcept nogil:
    mq_put64(file.base, file.begin_timestamp_ms)
    mq_put64(file.base + 8, file.end_timestamp_ms)
    mq_put64(file.base + 16, file.begin_physical_offset)
    mq_put64(file.base + 24, file.end_physical_offset)
    mq_put32(file.base + 32, file.hash_slot_count)
    mq_put32(file.base + 36, file.index_count)


cdef inline int32_t absolute_hash(uint32_t value) noexcept nogil:
    cdef int32_t signed_value = <int32_t> value
    if signed_value == -INT_MAX - 1:
        return 0
    return -signed_value if signed_value < 0 else signed_value


cdef inline int32_t seconds_since(int64_t begin_ms, int64_t time_ms) noexcept nogil:
    if begin_ms <= 0 or time_ms <= begin_ms:
        return 0
    return <int32_t> min((time_ms - begin_ms) // 1000, <int64_t> INT_MAX)


cdef inline uint8_t* slot_of(IndexFile* file, int32_t key_hash) noexcept nogil:
    return file.base + HEADER_SIZE + SLOT_SIZE * <int64_t> (<uint32_t> key_hash % <uint32_t> file.hash_slots)


cdef inline uint8_t* next_entry(IndexFile* file) noexcept nogil:
    return file.base + HEADER_SIZE + SLOT_SIZE * file.hash_slots + ENTRY_SIZE * <int64_t> file.index_count


cdef inline void put_key(
    IndexFile* file, uint8_t* entry, int32_t key_hash, int64_t physical_offset, int64_t time_ms
) noexcept nogil:
    """File one key, of which ``entry`` is to tell; there must be room for it."""
    cdef int32_t number = file.index_count
    cdef uint8_t* slot = slot_of(file, key_hash)
    cdef int32_t previous = mq_get32(slot)
    if previous <= 0 or previous >= number:
        previous = 0
        # Java's counter wraps as well; only a hostile file gets there.
        file.hash_slot_count = <int32_t> (<uint32_t> file.hash_slot_count + 1)
    mq_put32(entry, key_hash)
    mq_put64(entry + 4, physical_offset)
    mq_put32(entry + 12, seconds_since(file.begin_timestamp_ms, time_ms))
    mq_put32(entry + 16, previous)
    mq_put32(slot, number)
    if number == 1:
        file.begin_timestamp_ms, file.begin_physical_offset = time_ms, physical_offset
    file.end_timestamp_ms, file.end_physical_offset = time_ms, physical_offset
    file.index_count = number + 1


cdef struct RowKeys:
    # The keys of a row that were not given yet.
    const uint8_t* uniq_key
    int64_t uniq_key_size
    const uint8_t* at
    const uint8_t* end


cdef inline RowKeys keys_of_row(Columns* columns, const uint8_t* base, int64_t row) noexcept nogil:
    """The keys of a row, none if it is rolled back."""
    cdef RowKeys keys
    if columns.sys_flag[row] & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        keys.uniq_key = keys.at = keys.end = base
        keys.uniq_key_size = 0
        return keys
    keys.uniq_key = base + columns.uniq_key_position[row]
    keys.uniq_key_size = columns.uniq_key_size[row]
    keys.at = base + columns.keys_position[row]
    keys.end = keys.at + max(columns.keys_size[row], 0)
    return keys


cdef inline int64_t next_key(RowKeys* keys, const uint8_t** key) noexcept nogil:
    """Find the next key of a row: its size, or 0 behind the last one."""
    cdef int64_t size
    cdef const uint8_t* blank
    if keys.uniq_key_size > 0:
        size, key[0] = keys.uniq_key_size, keys.uniq_key
        keys.uniq_key_size = 0
        return size
    while keys.at < keys.end:
        key[0] = keys.at
        blank = <const uint8_t*> memchr(keys.at, c' ', keys.end - keys.at)
        if blank == NULL:
            blank = keys.end
        keys.at = blank + 1
        if blank > key[0]:
            return blank - key[0]
    return 0


cdef inline uint32_t topic_hash_of(Columns* columns, const uint8_t* base, int64_t row) noexcept nogil:
    """What the hashes of a row's keys go on from."""
    return java_hash(0, base + columns.topic_position[row], columns.topic_size[row]) * 31 + c'#'


cdef int64_t put_row_keys(
    IndexFile* file, Columns* columns, const uint8_t* base, int64_t row, int64_t first
) noexcept nogil:
    """File the keys of a row from number ``first`` on; -1, or the number of the key that found the file full."""
    cdef int64_t physical_offset = columns.own_offset[row]
    cdef int64_t time_ms = columns.store_timestamp_ms[row]
    cdef RowKeys keys = keys_of_row(columns, base, row)
    cdef uint32_t topic_hash = topic_hash_of(columns, base, row)
    cdef const uint8_t* key = NULL
    cdef int64_t number = 0
    cdef int64_t size = next_key(&keys, &key)
    while size > 0:
        if number >= first:
            if file.index_count >= file.max_entries:
                return number
            put_key(
                file, next_entry(file), absolute_hash(java_hash(topic_hash, key, size)), physical_offset, time_ms
            )
        number += 1
        size = next_key(&keys, &key)
    if number == 0 and first == 0 and file.index_count >= file.max_entries:
        return 0
    return -1


cdef int64_t file_rows(
    IndexFile* file, Columns* columns, const uint8_t* base, int64_t row, int64_t* key, int64_t stop
) noexcept nogil:
    """File the keys of rows up to ``stop``; the row at which the file was full, ``key`` being set, or ``stop``."""
    cdef int64_t full_at
    while row < stop:
        full_at = put_row_keys(file, columns, base, row, key[0])
        if full_at >= 0:
            key[0] = full_at
            return row
        key[0] = 0
        row += 1
    return stop


def index_put(
    index_buffer, int64_t hash_slots, int64_t max_entries, buffer, columns, Py_ssize_t row, int64_t key,
    Py_ssize_t stop,
):
    """File keys in an index file; see mqstore.kernels.api.Kernels.index_put."""
    cdef Target target = Target(index_buffer)
    cdef Source source = Source(buffer)
    cdef Columns rows
    cdef bytearray arena = open_columns(columns, &rows)
    cdef IndexFile file
    cdef int64_t reached
    check_rows(rows.count, row, stop)
    if max_entries < 2 or key < 0:
        raise UsageError("an index file needs room for a key", expected="2 entries or more", found=max_entries)
    check_dimensions(target.size, hash_slots, max_entries)
    check_parts(&rows, source.size, row, stop)
    read_header(&file, target.at, hash_slots, max_entries)
    if stop - row > RELEASE_ROWS:
        with nogil:
            reached = file_rows(&file, &rows, source.at, row, &key, stop)
    else:
        reached = file_rows(&file, &rows, source.at, row, &key, stop)
    write_header(&file)
    return reached, key


cdef int64_t count_keys(Columns* columns, const uint8_t* base, int64_t row, int64_t stop) noexcept nogil:
    cdef int64_t count = 0
    cdef RowKeys keys
    cdef const uint8_t* key = NULL
    while row < stop:
        keys = keys_of_row(columns, base, row)
        while next_key(&keys, &key) > 0:
            count += 1
        row += 1
    return count


cdef int64_t take_keys(
    Columns* columns, const uint8_t* base, int64_t row, int64_t stop, uint8_t* taken, int64_t most
) noexcept nogil:
    """Write the keys of rows to ``taken``, which has room for ``most``; how many there are."""
    cdef int64_t size, physical_offset, count = 0
    cdef RowKeys keys
    cdef const uint8_t* key = NULL
    cdef uint32_t topic_hash
    while row < stop:
        keys = keys_of_row(columns, base, row)
        physical_offset = columns.own_offset[row]
        topic_hash = topic_hash_of(columns, base, row)
        size = next_key(&keys, &key)
        while size > 0:
            if count == most:
                return count
            mq_put32(taken, absolute_hash(java_hash(topic_hash, key, size)))
            mq_put64(taken + 4, physical_offset)
            mq_put64(taken + 12, columns.store_timestamp_ms[row])
            taken += KEY_SIZE
            count += 1
            size = next_key(&keys, &key)
        row += 1
    return count


def index_keys(buffer, columns, Py_ssize_t row, Py_ssize_t stop):
    """The keys of rows, to be filed later; see mqstore.kernels.api.Kernels.index_keys."""
    cdef Source source = Source(buffer)
    cdef Columns rows
    cdef bytearray arena = open_columns(columns, &rows)
    cdef int64_t most, count
    cdef bytes taken
    cdef uint8_t* at
    check_rows(rows.count, row, stop)
    check_parts(&rows, source.size, row, stop)
    most = count_keys(&rows, source.at, row, stop)
    taken = PyBytes_FromStringAndSize(NULL, KEY_SIZE * most)
    at = <uint8_t*> PyBytes_AS_STRING(taken)
    if stop - row > RELEASE_ROWS:
        with nogil:
            count = take_keys(&rows, source.at, row, stop, at, most)
    else:
        count = take_keys(&rows, source.at, row, stop, at, most)
    return taken if count == most else taken[:KEY_SIZE * count]  # of a buffer that changes meanwhile


cdef bint has_negative_hash(const uint8_t* keys, int64_t count) noexcept nogil:
    cdef int32_t hashes = 0
    cdef int64_t number
    for number in range(count):
        hashes |= mq_get32(keys + KEY_SIZE * number)
    return hashes < 0


cdef void file_keys(IndexFile* file, const uint8_t* keys, int64_t count, uint8_t* entry) noexcept nogil:
    """File taken keys, their entries from ``entry`` on.

    Slots are met in no order, and all of them are more than a cache holds: each is asked for some keys ahead.
    """
    cdef const uint8_t* last = keys + KEY_SIZE * count
    while keys < last:
        if last - keys > KEY_SIZE * AHEAD:
            mq_prefetch(slot_of(file, mq_get32(keys + KEY_SIZE * AHEAD) & INT_MAX))
        put_key(file, entry, mq_get32(keys) & INT_MAX, mq_get64(keys + 4), mq_get64(keys + 12))
        keys += KEY_SIZE
        entry += ENTRY_SIZE


def index_entries(head, int64_t hash_slots, keys):
    """Entries of keys that were taken before; see mqstore.kernels.api.Kernels.index_entries."""
    cdef Target target = Target(head)
    cdef Source source = Source(keys)
    cdef IndexFile file
    cdef int64_t count = source.size // KEY_SIZE
    cdef bytes entries
    cdef uint8_t* at
    if source.size % KEY_SIZE != 0:
        raise UsageError("no such keys", expected=f"{KEY_SIZE} bytes each", found=source.size)
    check_dimensions(target.size, hash_slots, 0)
    if has_negative_hash(source.at, count):
        raise UsageError("the hash of a key is negative")
    read_header(&file, target.at, hash_slots, INT_MAX)
    if count > INT_MAX - file.index_count:
        raise UsageError("no index file takes so many keys", expected=INT_MAX - file.index_count, found=count)
    entries = PyBytes_FromStringAndSize(NULL, ENTRY_SIZE * count)
    at = <uint8_t*> PyBytes_AS_STRING(entries)
    with nogil:
        file_keys(&file, source.at, count, at)
    write_header(&file)
    return entries


cdef struct SlotWalk:
    int64_t count
    int64_t used
    int64_t end_physical_offset
    int64_t bad


cdef void walk_entries(
    const uint8_t* entries, int64_t stop, int64_t hash_slots, int64_t log_end, uint8_t* slots, SlotWalk* walk
) noexcept nogil:
    """Go through the entries behind number ``walk.count`` up to ``stop``."""
    cdef int64_t number, physical_offset
    cdef int32_t key_hash, previous
    cdef const uint8_t* entry
    cdef uint8_t* slot
    for number in range(walk.count + 1, stop):
        entry = entries
        entries += ENTRY_SIZE
        key_hash, physical_offset = mq_get32(entry), mq_get64(entry + 4)
        if physical_offset >= log_end:
            return
        slot = slots + SLOT_SIZE * (max(key_hash, 0) % hash_slots)
        previous = mq_get32(slot)
        if key_hash < 0 or physical_offset < walk.end_physical_offset or mq_get32(entry + 16) != previous:
            walk.bad = number
            return
        walk.used += previous == 0
        mq_put32(slot, <int32_t> number)
        walk.count, walk.end_physical_offset = number, physical_offset


def index_slots(entries, int64_t hash_slots, int64_t log_end, after=None):
    """Slots from entries; see mqstore.kernels.api.Kernels.index_slots."""
    cdef Source source = Source(entries)
    cdef Target slots
    cdef SlotWalk walk
    cdef int64_t stop
    walk.count = walk.used = walk.end_physical_offset = walk.bad = 0
    if after is not None:
        walk.count, walk.used, walk.end_physical_offset, walk.bad = after[1:]
    if not 1 <= hash_slots <= INT_MAX:
        raise UsageError("an index file has slots", expected=f"1..{INT_MAX}", found=hash_slots)
    if source.size % ENTRY_SIZE or not 0 <= walk.count <= INT_MAX - source.size // ENTRY_SIZE or walk.bad:
        raise UsageError("no such entries", expected=f"{ENTRY_SIZE} bytes each, behind sound ones", found=source.size)
    slots = Target(bytearray(hash_slots * SLOT_SIZE) if after is None else after[0])
    if slots.size != hash_slots * SLOT_SIZE:
        raise UsageError("slots of another file", expected=hash_slots * SLOT_SIZE, found=slots.size)
    stop = walk.count + 1 + source.size // ENTRY_SIZE
    with nogil:
        walk_entries(source.at, stop, hash_slots, log_end, slots.at, &walk)
    return IndexSlots(slots.done(), walk.count, walk.used, walk.end_physical_offset, walk.bad)
