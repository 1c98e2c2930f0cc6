# UTF-8 as Java decodes it: which malformed bytes become one U+FFFD is told in docs/format/properties.md.


cdef inline bint continues(const uint8_t* p, int64_t at, int64_t size) noexcept nogil:
    return at < size and p[at] & 0xC0 == 0x80


cdef inline int64_t next_character(const uint8_t* p, int64_t at, int64_t size, uint32_t* character) noexcept nogil:
    """The code point at ``at`` (U+FFFD for malformed bytes), and the position behind it."""
    cdef uint32_t first = p[at]
    cdef uint32_t second
    character[0] = 0xFFFD
    if first < 0x80:
        character[0] = first
        return at + 1
    if first < 0xC2 or first > 0xF4 or not continues(p, at + 1, size):
        return at + 1
    second = p[at + 1]
    if first < 0xE0:
        character[0] = (first & 0x1F) << 6 | second & 0x3F
        return at + 2
    if first < 0xF0:
        if first == 0xE0 and second < 0xA0:
            return at + 1
        if not continues(p, at + 2, size):
            return at + 2
        if first != 0xED or second < 0xA0:
            character[0] = (first & 0x0F) << 12 | (second & 0x3F) << 6 | <uint32_t> p[at + 2] & 0x3F
        return at + 3
    if first == 0xF0 and second < 0x90 or first == 0xF4 and second > 0x8F:
        return at + 1
    if not continues(p, at + 2, size):
        return at + 2
    if not continues(p, at + 3, size):
        return at + 3
    character[0] = ((first & 0x07) << 18 | (second & 0x3F) << 12 | (<uint32_t> p[at + 2] & 0x3F) << 6
                    | <uint32_t> p[at + 3] & 0x3F)
    return at + 4


cdef uint32_t java_hash(uint32_t value, const uint8_t* p, int64_t size) noexcept nogil:
    """Java's string hash, continued from ``value`` over the UTF-16 units of ``size`` bytes of UTF-8."""
    cdef int64_t at = 0
    cdef uint32_t character
    if mq_is_ascii(p, size):
        return mq_hash_ascii(value, p, size)
    while at < size:
        at = next_character(p, at, size, &character)
        if character >= 0x10000:
            value = value * 31 + (0xD7C0 + (character >> 10))
            character = 0xDC00 | character & 0x3FF
        value = value * 31 + character
    return value


cdef inline int put_character(uint8_t* p, uint32_t character) noexcept nogil:
    """UTF-8 of a code point; the number of bytes."""
    if character < 0x80:
        p[0] = <uint8_t> character
        return 1
    if character < 0x800:
        p[0] = <uint8_t> (0xC0 | character >> 6)
        p[1] = <uint8_t> (0x80 | character & 0x3F)
        return 2
    if character < 0x10000:
        p[0] = <uint8_t> (0xE0 | character >> 12)
        p[1] = <uint8_t> (0x80 | character >> 6 & 0x3F)
        p[2] = <uint8_t> (0x80 | character & 0x3F)
        return 3
    p[0] = <uint8_t> (0xF0 | character >> 18)
    p[1] = <uint8_t> (0x80 | character >> 12 & 0x3F)
    p[2] = <uint8_t> (0x80 | character >> 6 & 0x3F)
    p[3] = <uint8_t> (0x80 | character & 0x3F)
    return 4


cdef int64_t mended_text(const uint8_t* p, int64_t size, uint8_t* mended) noexcept nogil:
    """Size of the text with malformed bytes replaced; it is written to ``mended`` unless that is NULL."""
    cdef int64_t at = 0
    cdef int64_t total = 0
    cdef uint32_t character
    cdef uint8_t spare[4]
    while at < size:
        at = next_character(p, at, size, &character)
        total += put_character(&spare[0] if mended == NULL else mended + total, character)
    return total


cdef bint is_well_formed(const uint8_t* p, int64_t size) noexcept nogil:
    cdef int64_t at = 0
    cdef int64_t start
    cdef uint32_t character
    if mq_is_ascii(p, size):
        return True
    while at < size:
        start = at
        at = next_character(p, at, size, &character)
        # U+FFFD itself may be in the text: three bytes EF BF BD.
        if character == 0xFFFD and not (at - start == 3 and p[start] == 0xEF):
            return False
    return True
