/* Numbers of variable length: seven bits a byte, lowest first, of the zigzag form. */
#ifndef MQSTORE_KAFKA_H
#define MQSTORE_KAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bytes.h"

static inline int64_t mq_unzigzag(uint64_t raw)
{
    return (int64_t)((raw >> 1) ^ (0 - (raw & 1)));
}

/* The number at p, and the place behind it: NULL when it does not end before end or has more than the given bits. */
static const uint8_t *mq_varint_slow(const uint8_t *p, const uint8_t *end, int bits, int64_t *value)
{
    uint64_t raw = 0;
    for (int shift = 0; shift < bits && p < end; shift += 7) {
        uint64_t byte = *p++;
        /* What the last byte may hold: the rest of the bits, and no further byte. */
        if (shift + 7 > bits && byte >> (bits - shift))
            return NULL;
        raw |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = mq_unzigzag(raw);
            return p;
        }
    }
    return NULL;
}

/* One and two bytes, nearly all there are, without a loop. */
static inline const uint8_t *mq_varint(const uint8_t *p, const uint8_t *end, int64_t *value)
{
    if (p != NULL && end - p >= 2) {
        uint32_t low = p[0], high = p[1];
        if (low < 0x80) {
            *value = mq_unzigzag(low);
            return p + 1;
        }
        if (high < 0x80) {
            *value = mq_unzigzag((low & 0x7F) | high << 7);
            return p + 2;
        }
    }
    return p == NULL ? NULL : mq_varint_slow(p, end, 32, value);
}

static inline const uint8_t *mq_varlong(const uint8_t *p, const uint8_t *end, int64_t *value)
{
    if (p != NULL && end - p >= 3) {
        uint32_t low = p[0], middle = p[1], high = p[2];
        if (low < 0x80) {
            *value = mq_unzigzag(low);
            return p + 1;
        }
        if (middle < 0x80) {
            *value = mq_unzigzag((low & 0x7F) | middle << 7);
            return p + 2;
        }
        if (high < 0x80) {
            *value = mq_unzigzag((low & 0x7F) | (middle & 0x7F) << 7 | high << 14);
            return p + 3;
        }
    }
    return p == NULL ? NULL : mq_varint_slow(p, end, 64, value);
}

/* Where bytes with their length before them begin; *size is -1 for none. NULL when they do not fit. */
static inline const uint8_t *mq_sized(const uint8_t *p, const uint8_t *end, int64_t *size)
{
    p = mq_varint(p, end, size);
    if (p == NULL || *size < -1 || *size > end - p)
        return NULL;
    return p;
}

static inline uint64_t mq_zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static inline int mq_varint_size(int64_t value)
{
    return (70 - __builtin_clzll(mq_zigzag(value) | 1)) / 7;
}

static inline uint8_t *mq_put_varint(uint8_t *p, int64_t value)
{
    uint64_t raw = mq_zigzag(value);
    for (; raw >= 0x80; raw >>= 7)
        *p++ = (uint8_t)(raw | 0x80);
    *p++ = (uint8_t)raw;
    return p;
}

/* Ask for the heads of the records to come. Where they lie is a guess: that they are as long as this one. Records with
 * large values leave most of the memory between their heads alone, so nothing else asks for it in time. */
static inline void mq_prefetch_record(const uint8_t *p, int64_t size)
{
    if (size >= 192) {
        uintptr_t ahead = (uintptr_t)p + (uintptr_t)(size > 16384 ? size : 4 * size);
        __builtin_prefetch((const void *)(ahead - 64));
        __builtin_prefetch((const void *)ahead);
    }
}

#endif
