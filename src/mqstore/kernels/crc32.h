/* CRC-32 as zlib computes it, and CRC-32C (Castagnoli), at the speed of the machine's own instructions.
 *
 * The two differ in their polynomial and nothing else, so everything here takes the kind of checksum as its first
 * argument. One way is chosen when the module is loaded (mq_crc_init):
 *   - x86 with PCLMULQDQ: carry-less multiplication folds 64 bytes at a time, 128 with VPCLMULQDQ;
 *   - ARM64 with the CRC extension: one instruction for each kind takes 8 bytes;
 *   - everything else: eight tables take 8 bytes at a time.
 *
 * The functions below work on the raw register ("state"): zlib's value is ~state(~value, bytes).
 *
 * What the register means. Bytes are polynomials over GF(2), the lowest bit of a byte being the highest power
 * ("reflected"). state(s, M) is the remainder of (s * x^(8*len) + M * x^32) modulo
 *     P = x^32 + x^26 + x^23 + x^22 + x^16 + x^12 + x^11 + x^10 + x^8 + x^7 + x^5 + x^4 + x^2 + x + 1
 * written with x^31 in bit 0; P without its top term is then 0xEDB88320. For CRC-32C it is
 *     P = x^32 + x^28 + x^27 + x^26 + x^25 + x^23 + x^22 + x^20 + x^19 + x^18 + x^14 + x^13 + x^11 + x^10 + x^9 + x^8
 *         + x^6 + 1, or 0x82F63B78.
 */
#ifndef MQSTORE_CRC32_H
#define MQSTORE_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MQ_CRC_POLY 0xEDB88320u
#define MQ_CRC32C_POLY 0x82F63B78u

/* How far ahead of the checksum memory is asked for: across the page borders where the processor itself stops, and
 * into the next record of a log. */
#define MQ_CRC_AHEAD 2048

static inline uint32_t mq_le32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

/* ---- kinds --------------------------------------------------------------------------------------------------- */

/* Folding replaces a block of 16 bytes by a congruent one D bits further on: block * x^D modulo P is added to the
 * 16 bytes that lie there. The block is H * x^64 + L, H in the register's low half because the bytes are
 * reflected, so block * x^D = H * x^(D+64) + L * x^D, two carry-less products with powers reduced modulo P.
 *
 * The product of two reflected 64-bit values is the reflected product times x, and a reflected 32-bit remainder
 * shifted left by one (33 bits, in a 64-bit lane) stands for remainder * x^31. So the exponents to take are
 * D + 64 - 1 - 31 = D + 32 for H, and D - 32 for L: x^544 and x^480 for D = 512 (four blocks on), x^160 and x^96 for
 * D = 128 (the next block); with two blocks side by side D is 1024 and 256.
 */
#define MQ_CRC_X544 0x154442BD4ll
#define MQ_CRC_X480 0x1C6E41596ll
#define MQ_CRC_X160 0x1751997D0ll
#define MQ_CRC_X96 0x0CCAA009Ell
#define MQ_CRC_X1056 0x1E88EF372ll
#define MQ_CRC_X992 0x14A7FE880ll
#define MQ_CRC_X288 0x0F1DA05AAll
#define MQ_CRC_X224 0x15A546366ll

#define MQ_CRC32C_X544 0x0740EEF02ll
#define MQ_CRC32C_X480 0x09E4ADDF8ll
#define MQ_CRC32C_X160 0x0F20C0DFEll
#define MQ_CRC32C_X96 0x14CD00BD6ll
#define MQ_CRC32C_X1056 0x06992CEA2ll
#define MQ_CRC32C_X992 0x00D3B6092ll
#define MQ_CRC32C_X288 0x1384AA63All
#define MQ_CRC32C_X224 0x0BA4FC28Ell

struct mq_crc_kind {
    uint32_t poly;
    int64_t x544, x480, x160, x96, x1056, x992, x288, x224;
    /* table[k][b] is the state that byte b leaves behind when k zero bytes follow it. */
    uint32_t table[8][256];
};

#define MQ_CRC_POWERS(name)                                                                                     \
    name##_X544, name##_X480, name##_X160, name##_X96, name##_X1056, name##_X992, name##_X288, name##_X224

static struct mq_crc_kind mq_crc_zlib = {MQ_CRC_POLY, MQ_CRC_POWERS(MQ_CRC), {{0}}};
static struct mq_crc_kind mq_crc_castagnoli = {MQ_CRC32C_POLY, MQ_CRC_POWERS(MQ_CRC32C), {{0}}};

static void mq_crc_fill_tables(struct mq_crc_kind *kind)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t s = b;
        for (int bit = 0; bit < 8; bit++)
            s = (s >> 1) ^ (s & 1 ? kind->poly : 0);
        kind->table[0][b] = s;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t s = kind->table[k - 1][b];
            kind->table[k][b] = (s >> 8) ^ kind->table[0][s & 0xFF];
        }
}

/* ---- tables --------------------------------------------------------------------------------------------------- */

static inline uint32_t mq_crc_eight_bytes(const struct mq_crc_kind *kind, uint32_t s, const uint8_t *p)
{
    uint32_t a = s ^ mq_le32(p), b = mq_le32(p + 4);
    return kind->table[7][a & 0xFF] ^ kind->table[6][(a >> 8) & 0xFF]
         ^ kind->table[5][(a >> 16) & 0xFF] ^ kind->table[4][a >> 24]
         ^ kind->table[3][b & 0xFF] ^ kind->table[2][(b >> 8) & 0xFF]
         ^ kind->table[1][(b >> 16) & 0xFF] ^ kind->table[0][b >> 24];
}

static uint32_t mq_crc_by_table(const struct mq_crc_kind *kind, uint32_t s, const uint8_t *p, size_t n)
{
    for (; n >= 8; n -= 8, p += 8)
        s = mq_crc_eight_bytes(kind, s, p);
    for (; n > 0; n--, p++)
        s = (s >> 8) ^ kind->table[0][(s ^ *p) & 0xFF];
    return s;
}

/* ---- x86: folding ------------------------------------------------------------------------------------- */

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#define MQ_CRC_X86 1
#include <emmintrin.h>
#include <wmmintrin.h>

#define MQ_PCLMUL __attribute__((target("sse2,pclmul")))

MQ_PCLMUL static inline __m128i mq_crc_fold(__m128i block, __m128i powers, __m128i next)
{
    __m128i high = _mm_clmulepi64_si128(block, powers, 0x00);
    __m128i low = _mm_clmulepi64_si128(block, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(high, low), next);
}

#define MQ_LOAD(at) _mm_loadu_si128((const __m128i *)(at))

MQ_PCLMUL static uint32_t mq_crc_by_folding(const struct mq_crc_kind *kind, uint32_t s, const uint8_t *p, size_t n)
{
    if (n < 32)
        return mq_crc_by_table(kind, s, p, n);
    const __m128i by_one = _mm_set_epi64x(kind->x96, kind->x160);
    /* s * x^(8*len) is s added to the first four bytes. */
    __m128i a = _mm_xor_si128(MQ_LOAD(p), _mm_cvtsi32_si128((int)s));
    if (n >= 128) {
        const __m128i by_four = _mm_set_epi64x(kind->x480, kind->x544);
        __m128i b = MQ_LOAD(p + 16), c = MQ_LOAD(p + 32), d = MQ_LOAD(p + 48);
        for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
            __builtin_prefetch(p + MQ_CRC_AHEAD);
            a = mq_crc_fold(a, by_four, MQ_LOAD(p));
            b = mq_crc_fold(b, by_four, MQ_LOAD(p + 16));
            c = mq_crc_fold(c, by_four, MQ_LOAD(p + 32));
            d = mq_crc_fold(d, by_four, MQ_LOAD(p + 48));
        }
        b = mq_crc_fold(a, by_one, b);
        c = mq_crc_fold(b, by_one, c);
        a = mq_crc_fold(c, by_one, d);
    } else {
        p += 16;
        n -= 16;
    }
    for (; n >= 16; p += 16, n -= 16)
        a = mq_crc_fold(a, by_one, MQ_LOAD(p));
    /* What is left is congruent to all bytes so far: its own remainder is theirs. */
    uint8_t folded[16];
    _mm_storeu_si128((__m128i *)folded, a);
    return mq_crc_by_table(kind, mq_crc_by_table(kind, 0, folded, 16), p, n);
}

/* The same with registers of 32 bytes, two blocks side by side, 128 bytes at a time. */
#if defined(__x86_64__) && (__GNUC__ >= 9 || __clang_major__ >= 9)
#define MQ_CRC_WIDE 1
#include <immintrin.h>

#define MQ_VPCLMUL __attribute__((target("avx2,pclmul,vpclmulqdq")))

MQ_VPCLMUL static inline __m256i mq_crc_fold_wide(__m256i blocks, __m256i powers, __m256i next)
{
    __m256i high = _mm256_clmulepi64_epi128(blocks, powers, 0x00);
    __m256i low = _mm256_clmulepi64_epi128(blocks, powers, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(high, low), next);
}

#define MQ_LOAD_WIDE(at) _mm256_loadu_si256((const __m256i *)(at))

MQ_VPCLMUL static uint32_t
mq_crc_by_wide_folding(const struct mq_crc_kind *kind, uint32_t s, const uint8_t *p, size_t n)
{
    if (n < 256)
        return mq_crc_by_folding(kind, s, p, n);
    const __m256i by_four = _mm256_set_epi64x(kind->x992, kind->x1056, kind->x992, kind->x1056);
    const __m256i by_one = _mm256_set_epi64x(kind->x224, kind->x288, kind->x224, kind->x288);
    __m256i a = MQ_LOAD_WIDE(p), b = MQ_LOAD_WIDE(p + 32), c = MQ_LOAD_WIDE(p + 64), d = MQ_LOAD_WIDE(p + 96);
    a = _mm256_xor_si256(a, _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)s)));
    for (p += 128, n -= 128; n >= 128; p += 128, n -= 128) {
        __builtin_prefetch(p + MQ_CRC_AHEAD);
        __builtin_prefetch(p + MQ_CRC_AHEAD + 64);
        a = mq_crc_fold_wide(a, by_four, MQ_LOAD_WIDE(p));
        b = mq_crc_fold_wide(b, by_four, MQ_LOAD_WIDE(p + 32));
        c = mq_crc_fold_wide(c, by_four, MQ_LOAD_WIDE(p + 64));
        d = mq_crc_fold_wide(d, by_four, MQ_LOAD_WIDE(p + 96));
    }
    b = mq_crc_fold_wide(a, by_one, b);
    c = mq_crc_fold_wide(b, by_one, c);
    d = mq_crc_fold_wide(c, by_one, d);
    for (; n >= 32; p += 32, n -= 32)
        d = mq_crc_fold_wide(d, by_one, MQ_LOAD_WIDE(p));
    uint8_t folded[32];
    _mm256_storeu_si256((__m256i *)folded, d);
    _mm256_zeroupper();
    return mq_crc_by_table(kind, mq_crc_by_folding(kind, 0, folded, 32), p, n);
}
#endif
#endif

/* ---- ARM64: the crc32 instructions ------------------------------------------------------------------------ */

#if defined(__aarch64__) && defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define MQ_CRC_ARM 1
#if defined(__linux__)
#include <sys/auxv.h>
#endif

#define MQ_CRC_LOOPS(wide, narrow)                                                                               \
    for (; n >= 8; n -= 8, p += 8) {                                                                             \
        uint64_t v;                                                                                              \
        memcpy(&v, p, 8);                                                                                        \
        __asm__(".arch_extension crc\n\t" wide " %w0, %w0, %x1" : "+r"(s) : "r"(v));                             \
    }                                                                                                            \
    for (; n > 0; n--, p++)                                                                                      \
        __asm__(".arch_extension crc\n\t" narrow " %w0, %w0, %w1" : "+r"(s) : "r"((uint32_t)*p))

static uint32_t mq_crc_by_instruction(const struct mq_crc_kind *kind, uint32_t s, const uint8_t *p, size_t n)
{
    if (kind->poly == MQ_CRC_POLY) {
        MQ_CRC_LOOPS("crc32x", "crc32b");
    } else {
        MQ_CRC_LOOPS("crc32cx", "crc32cb");
    }
    return s;
}
#endif

/* ---- choice ------------------------------------------------------------------------------------------------ */

typedef uint32_t (*mq_crc_function)(const struct mq_crc_kind *, uint32_t, const uint8_t *, size_t);

enum { MQ_CRC_TABLE, MQ_CRC_PCLMUL, MQ_CRC_VPCLMUL, MQ_CRC_ARMV8, MQ_CRC_WAYS };

static const char *const mq_crc_names[MQ_CRC_WAYS] = {"table", "pclmul", "vpclmul", "armv8"};

/* The function of one way, or NULL when this machine or this build has not got it. */
static mq_crc_function mq_crc_by(int way)
{
    if (way == MQ_CRC_TABLE)
        return mq_crc_by_table;
#if defined(MQ_CRC_X86)
    __builtin_cpu_init();
    int narrow = __builtin_cpu_supports("sse2") && __builtin_cpu_supports("pclmul");
    if (way == MQ_CRC_PCLMUL && narrow)
        return mq_crc_by_folding;
#if defined(MQ_CRC_WIDE)
    if (way == MQ_CRC_VPCLMUL && narrow && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq"))
        return mq_crc_by_wide_folding;
#endif
#elif defined(MQ_CRC_ARM)
#if defined(__APPLE__)
    int has_crc = 1; /* every Apple ARM64 processor */
#elif defined(__linux__)
    int has_crc = (getauxval(AT_HWCAP) & (1ul << 7)) != 0; /* HWCAP_CRC32 */
#else
    int has_crc = 0;
#endif
    if (way == MQ_CRC_ARMV8 && has_crc)
        return mq_crc_by_instruction;
#endif
    return NULL;
}

static mq_crc_function mq_crc_state = mq_crc_by_table;

/* Must have run before anything else of this file is used. */
static void mq_crc_init(void)
{
    mq_crc_fill_tables(&mq_crc_zlib);
    mq_crc_fill_tables(&mq_crc_castagnoli);
    for (int way = 0; way < MQ_CRC_WAYS; way++)
        if (mq_crc_by(way) != NULL)
            mq_crc_state = mq_crc_by(way);
}

static inline uint32_t mq_crc32(uint32_t value, const uint8_t *p, size_t n)
{
    return ~mq_crc_state(&mq_crc_zlib, ~value, p, n);
}

static inline uint32_t mq_crc32c(uint32_t value, const uint8_t *p, size_t n)
{
    return ~mq_crc_state(&mq_crc_castagnoli, ~value, p, n);
}

/* In one way, which must be there: for tests. */
static inline uint32_t mq_crc_with(int way, int castagnoli, uint32_t value, const uint8_t *p, size_t n)
{
    return ~mq_crc_by(way)(castagnoli ? &mq_crc_castagnoli : &mq_crc_zlib, ~value, p, n);
}

/* ---- checksums of parts -------------------------------------------------------------------------------------- */

/* Product modulo P, that of zlib's kind here and below, of two reflected remainders. */
static inline uint32_t mq_crc_times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t power = 0x80000000u; power != 0; power >>= 1) {
        if (a & power)
            product ^= b;
        b = (b >> 1) ^ (b & 1 ? MQ_CRC_POLY : 0);
    }
    return product;
}

/* s * x^(8n), the state that s becomes under n zero bytes, by squaring x^8 (bit 23 when reflected). The checksum of
 * [a, b) is P(b) ^ mq_crc_after_zeros(P(a), b - a) where P is the checksum up to a place. */
static inline uint32_t mq_crc_after_zeros(uint32_t s, uint64_t n)
{
    for (uint32_t power = 0x00800000u; n != 0; n >>= 1, power = mq_crc_times(power, power))
        if (n & 1)
            s = mq_crc_times(power, s);
    return s;
}

#endif
