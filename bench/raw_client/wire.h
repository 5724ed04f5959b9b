/* Big-endian fields of the Kafka protocol, a clock, and the one way to give up. */
#ifndef RAW_CLIENT_WIRE_H
#define RAW_CLIENT_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint8_t *put_i8(uint8_t *at, int8_t value) {
    *at = (uint8_t)value;
    return at + 1;
}

static inline uint8_t *put_i16(uint8_t *at, int16_t value) {
    uint16_t big = __builtin_bswap16((uint16_t)value);
    memcpy(at, &big, sizeof big);
    return at + sizeof big;
}

static inline uint8_t *put_i32(uint8_t *at, int32_t value) {
    uint32_t big = __builtin_bswap32((uint32_t)value);
    memcpy(at, &big, sizeof big);
    return at + sizeof big;
}

static inline uint8_t *put_i64(uint8_t *at, int64_t value) {
    uint64_t big = __builtin_bswap64((uint64_t)value);
    memcpy(at, &big, sizeof big);
    return at + sizeof big;
}

static inline uint8_t *put_string(uint8_t *at, const char *text) {
    size_t length = strlen(text);
    at = put_i16(at, (int16_t)length);
    memcpy(at, text, length);
    return at + length;
}

static inline int16_t get_i16(const uint8_t *at) {
    uint16_t big;
    memcpy(&big, at, sizeof big);
    return (int16_t)__builtin_bswap16(big);
}

static inline int32_t get_i32(const uint8_t *at) {
    uint32_t big;
    memcpy(&big, at, sizeof big);
    return (int32_t)__builtin_bswap32(big);
}

static inline int64_t get_i64(const uint8_t *at) {
    uint64_t big;
    memcpy(&big, at, sizeof big);
    return (int64_t)__builtin_bswap64(big);
}

/* Nanoseconds of a clock that never goes back. */
int64_t now_ns(void);

/* User and system CPU time of this process so far. */
double cpu_seconds(void);

/* Print one line to stderr and exit with status 1. */
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

void *take_memory(size_t size_bytes);

#endif
