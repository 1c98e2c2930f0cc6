/* Big-endian numbers at any address, and the search for the marks that part a properties string. */
#ifndef MQSTORE_BYTES_H
#define MQSTORE_BYTES_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define MQ_BIG16(v) (v)
#define MQ_BIG32(v) (v)
#define MQ_BIG64(v) (v)
#define MQ_LITTLE64(v) __builtin_bswap64(v)
#else
#define MQ_BIG16(v) __builtin_bswap16(v)
#define MQ_BIG32(v) __builtin_bswap32(v)
#define MQ_BIG64(v) __builtin_bswap64(v)
#define MQ_LITTLE64(v) (v)
#endif

static inline int16_t mq_get16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return (int16_t)MQ_BIG16(v);
}

/* Ask for memory that will be written to soon. */
static inline void mq_prefetch(const uint8_t *p)
{
    __builtin_prefetch(p, 1);
}

static inline int32_t mq_get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return (int32_t)MQ_BIG32(v);
}

static inline int64_t mq_get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return (int64_t)MQ_BIG64(v);
}

static inline void mq_put16(uint8_t *p, int32_t value)
{
    uint16_t v = MQ_BIG16((uint16_t)value);
    memcpy(p, &v, 2);
}

static inline void mq_put32(uint8_t *p, int32_t value)
{
    uint32_t v = MQ_BIG32((uint32_t)value);
    memcpy(p, &v, 4);
}

/* Size and magic, the first eight bytes of a record, written after everything else: a process that reads the
 * mapped file at this moment finds unwritten space or the whole record, never half of one. */
static inline void mq_publish(uint8_t *p, int32_t size, int32_t magic)
{
    uint8_t prefix[8];
    uint64_t v;
    mq_put32(prefix, size);
    mq_put32(prefix + 4, magic);
    memcpy(&v, prefix, 8);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(p, &v, 8);
}

static inline void mq_put64(uint8_t *p, int64_t value)
{
    uint64_t v = MQ_BIG64((uint64_t)value);
    memcpy(p, &v, 8);
}

/* First position in [at, size) of a byte 0, 1 or 2, or size. Eight bytes are tried at once: subtracting 3 from
 * each borrows into the top bit of those below 3; only borrows above the lowest such byte can be false. */
static inline int32_t mq_next_mark(const uint8_t *p, int32_t at, int32_t size)
{
    const uint64_t ones = 0x0101010101010101ull;
    for (; at + 8 <= size; at += 8) {
        uint64_t v;
        memcpy(&v, p + at, 8);
        v = MQ_LITTLE64(v);
        uint64_t below = (v - 3 * ones) & ~v & (ones << 7);
        if (below)
            return at + (__builtin_ctzll(below) >> 3);
    }
    while (at < size && p[at] > 2)
        at++;
    return at;
}

/* Whether all bytes are ASCII. */
static inline int mq_is_ascii(const uint8_t *p, int64_t size)
{
    uint64_t all = 0;
    for (; size >= 8; size -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        all |= v;
    }
    for (; size > 0; size--, p++)
        all |= (uint64_t)*p << 56;
    return (all & 0x8080808080808080ull) == 0;
}

/* Java's string hash continued over ASCII text. Four characters at a time: the powers of 31 break the chain. */
static inline uint32_t mq_hash_ascii(uint32_t h, const uint8_t *p, int64_t size)
{
    for (; size >= 4; size -= 4, p += 4)
        h = h * 923521u + p[0] * 29791u + p[1] * 961u + p[2] * 31u + p[3];
    for (; size > 0; size--, p++)
        h = h * 31u + *p;
    return h;
}

/* A hash for tables that live for one call. The seed is secret, so nobody can choose topics that collide. */
static inline uint64_t mq_mix(uint64_t a, uint64_t b)
{
#if defined(__SIZEOF_INT128__)
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    a = (a ^ (a >> 32)) * (b | 1);
    return a ^ (a >> 29) ^ b;
#endif
}

static inline uint64_t mq_hash(uint64_t seed, const uint8_t *p, int64_t size)
{
    uint64_t h = mq_mix(seed ^ 0x9E3779B97F4A7C15ull, (uint64_t)size ^ 0xD1B54A32D192ED03ull), v;
    for (; size >= 8; size -= 8, p += 8) {
        memcpy(&v, p, 8);
        h = mq_mix(h ^ v, seed ^ 0xA0761D6478BD642Full);
    }
    v = 0;
    memcpy(&v, p, (size_t)size);
    return mq_mix(h ^ v, seed ^ 0xE7037ED1A0B428DBull);
}

/* Ask for memory that a walk over records will need soon; measured, and worth a factor of 1.3 to 1.7 on logs that are
 * not in the cache. Where bodies are read for their checksums, the checksum itself asks ahead and only the next head
 * is left to ask for. Otherwise: a record's end (topic, properties) and the next head are neighbours, and records of a
 * log are often alike, so the place where the record after the next should start tells where to look. Small records
 * are asked for as a whole. A wrong guess costs nothing but the asking. */
static inline void mq_prefetch_next(const uint8_t *p, int32_t size, int bodies_are_read)
{
    uintptr_t next = (uintptr_t)p + (uint32_t)size, guess = next + (uint32_t)size;
    if (bodies_are_read || size > 2048) {
        __builtin_prefetch((const void *)next);
        __builtin_prefetch((const void *)(next + 64));
        next = bodies_are_read ? guess + 128 : guess - 192;
    }
    for (; next < guess + 128; next += 64)
        __builtin_prefetch((const void *)next);
}

#endif
