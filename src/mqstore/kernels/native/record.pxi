# The judgement on one record. The rules and their order are those of layout.record.decode_record.

cdef enum Verdict:
    VALID = 0
    # 1.. are the numbers of layout.record.Damage.
    UNWRITTEN = 2
    BAD_MAGIC = 3
    BAD_SIZE = 4
    BAD_PHYSICAL_OFFSET = 5
    BAD_LENGTHS = 6
    BAD_BODY_CRC = 7
    BAD_PROPERTIES = 8
    IS_SHORT = -1
    IS_BLANK = -2


cdef struct Span:
    # Part of a record or of its properties; size -1: there is none.
    int32_t start
    int32_t size


cdef struct Parts:
    # Where the parts of a record lie, counted from its first byte.
    int32_t size
    int32_t magic
    int32_t sys_flag
    int32_t store_host
    Span body
    Span topic
    Span properties


cdef struct Marks:
    # The properties that kernels look at, counted from the first byte of the properties.
    Span tags
    Span keys
    Span uniq_key


cdef inline Verdict judge_head(const uint8_t* p, int64_t left, int64_t own_offset, Parts* parts) noexcept nogil:
    """Size, magic and own offset of what starts at ``p``, of which ``left`` bytes may be looked at.

    On IS_SHORT and IS_BLANK ``parts.size`` is what the size field says (0 if it could not be read).
    """
    parts.size = 0
    if left < BLANK_SIZE:
        return IS_SHORT
    parts.size = mq_get32(p)
    parts.magic = mq_get32(p + 4)
    if parts.magic == MAGIC_BLANK:
        return IS_BLANK
    if parts.magic != MAGIC_V1 and parts.magic != MAGIC_V2:
        return UNWRITTEN if parts.size == 0 and parts.magic == 0 else BAD_MAGIC
    if parts.size < MIN_RECORD_SIZE + (parts.magic == MAGIC_V2):
        return BAD_SIZE
    if left >= OWN_OFFSET_END and mq_get64(p + 28) != own_offset:
        return BAD_PHYSICAL_OFFSET
    return IS_SHORT if parts.size > left else VALID


cdef inline Verdict find_parts(const uint8_t* p, Parts* parts) noexcept nogil:
    """Length arithmetic of a record all of whose bytes are there and whose head is right."""
    cdef int32_t size = parts.size
    cdef int32_t at, length
    parts.sys_flag = mq_get32(p + 36)
    parts.store_host = 48 + (HOST_V6_SIZE if parts.sys_flag & BORN_HOST_V6 else HOST_V4_SIZE) + 8
    at = parts.store_host + (HOST_V6_SIZE if parts.sys_flag & STORE_HOST_V6 else HOST_V4_SIZE) + 16
    if at > size:
        return BAD_LENGTHS
    length = mq_get32(p + at - 4)
    if length < 0 or length > size - at:
        return BAD_LENGTHS
    parts.body.start, parts.body.size = at, length
    at += length
    if parts.magic == MAGIC_V1:
        if size - at < 1:
            return BAD_LENGTHS
        length = <int8_t> p[at]
        at += 1
    else:
        if size - at < 2:
            return BAD_LENGTHS
        length = mq_get16(p + at)
        at += 2
    if length < 0 or length > size - at:
        return BAD_LENGTHS
    parts.topic.start, parts.topic.size = at, length
    at += length
    if size - at < 2:
        return BAD_LENGTHS
    length = mq_get16(p + at)
    at += 2
    if length < 0 or length != size - at:
        return BAD_LENGTHS
    parts.properties.start, parts.properties.size = at, length
    return VALID


cdef inline void mark_value(const uint8_t* p, Span name, Span value, Marks* marks) noexcept nogil:
    if value.size == 0:
        return
    if name.size == 4:
        if memcmp(p + name.start, b"TAGS", 4) == 0:
            marks.tags = value
        elif memcmp(p + name.start, b"KEYS", 4) == 0:
            marks.keys = value
    elif name.size == 8 and memcmp(p + name.start, b"UNIQ_KEY", 8) == 0:
        marks.uniq_key = value


cdef inline bint next_pair(
    const uint8_t* p, int32_t size, int32_t* at, Span* name, Span* value, bint* damaged
) noexcept nogil:
    """The next non-empty segment from ``at`` on, which is set behind it; False at the end and on damage.

    A segment without separator between name and value, or one with a NUL byte, is damage.
    """
    cdef int32_t start = at[0]
    cdef int32_t separator = -1
    cdef int32_t mark
    while start < size:
        mark = mq_next_mark(p, start, size)
        while mark < size and p[mark] == 1:
            if separator < 0:
                separator = mark
            mark = mq_next_mark(p, mark + 1, size)
        if mark < size and p[mark] == 0:
            damaged[0] = True
            return False
        if mark > start:
            if separator < 0:
                damaged[0] = True
                return False
            name.start, name.size = start, separator - start
            value.start, value.size = separator + 1, mark - separator - 1
            at[0] = mark + 1
            return True
        start = mark + 1
    at[0] = start
    return False


cdef inline bint read_properties(const uint8_t* p, int32_t size, Marks* marks) noexcept nogil:
    """Fill ``marks``; False when the properties are damaged."""
    cdef Span name, value
    cdef int32_t at = 0
    cdef bint damaged = False
    marks.tags.size = marks.keys.size = marks.uniq_key.size = -1
    while next_pair(p, size, &at, &name, &value, &damaged):
        mark_value(p, name, value, marks)
    return not damaged


cdef inline bint has_body_crc(const uint8_t* p, Parts* parts) noexcept nogil:
    return <int32_t> (mq_crc32(0, p + parts.body.start, parts.body.size) & CRC_MASK) == mq_get32(p + 8)


cdef inline Verdict judge(
    const uint8_t* p, int64_t left, int64_t own_offset, bint check_crc, Parts* parts, Marks* marks
) noexcept nogil:
    """The whole judgement on what starts at ``p``."""
    cdef Verdict verdict = judge_head(p, left, own_offset, parts)
    if verdict != VALID:
        return verdict
    mq_prefetch_next(p, parts.size, check_crc)
    verdict = find_parts(p, parts)
    if verdict != VALID:
        return verdict
    if check_crc and not has_body_crc(p, parts):
        return BAD_BODY_CRC
    if not read_properties(p + parts.properties.start, parts.properties.size, marks):
        return BAD_PROPERTIES
    return VALID
