#include "record_batch.h"

#include <sys/time.h>

#include "wire.h"

enum {
    AT_BATCH_LENGTH = 8,
    AT_MAGIC = 16,
    AT_CRC = 17,
    AT_ATTRIBUTES = 21, /* the checksum covers everything from here */
    AT_LAST_OFFSET_DELTA = 23,
    AT_PRODUCER_ID = 43,
    TRANSACTIONAL = 0x10,
    VARINT_BYTES_MAX = 5,
};

/* CRC-32C (Castagnoli), reflected; a byte at a time is enough: a batch is made once, or costs a transaction some microseconds. */
static uint32_t crc32c(const uint8_t *bytes, size_t size_bytes) {
    static uint32_t table[256];
    if (table[1] == 0) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t remainder = byte;
            for (int bit = 0; bit < 8; bit++)
                remainder = remainder & 1 ? remainder >> 1 ^ 0x82F63B78u : remainder >> 1;
            table[byte] = remainder;
        }
    }
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < size_bytes; i++) crc = table[(crc ^ bytes[i]) & 0xFF] ^ crc >> 8;
    return ~crc;
}

static uint8_t *put_varint(uint8_t *at, int32_t value) {
    uint32_t zigzag = ((uint32_t)value << 1) ^ (uint32_t)(value >> 31);
    while (zigzag >= 0x80) {
        *at++ = (uint8_t)(zigzag | 0x80);
        zigzag >>= 7;
    }
    *at++ = (uint8_t)zigzag;
    return at;
}

static size_t varint_bytes(int32_t value) {
    uint8_t scratch[VARINT_BYTES_MAX];
    return (size_t)(put_varint(scratch, value) - scratch);
}

static uint8_t *put_record(uint8_t *at, int index, int value_bytes) {
    /* attributes, timestamp delta 0, offset delta, null key, value, no headers */
    size_t body = 1 + 1 + varint_bytes(index) + 1 + varint_bytes(value_bytes) + (size_t)value_bytes + 1;
    at = put_varint(at, (int32_t)body);
    at = put_i8(at, 0);
    at = put_varint(at, 0);
    at = put_varint(at, index);
    at = put_varint(at, -1);
    at = put_varint(at, value_bytes);
    static uint32_t noise = 2463534242u; /* xorshift: printable values that hardly compress */
    for (int i = 0; i < value_bytes; i++) {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        *at++ = (uint8_t)('0' + (noise >> 8) % 75);
    }
    return put_varint(at, 0);
}

struct record_batch build_record_batch(int record_count, int value_bytes) {
    size_t bound = BATCH_HEADER_BYTES + (size_t)record_count * ((size_t)value_bytes + 4 + 3 * VARINT_BYTES_MAX);
    uint8_t *bytes = take_memory(bound);
    uint8_t *end = bytes + BATCH_HEADER_BYTES;
    for (int i = 0; i < record_count; i++) end = put_record(end, i, value_bytes);
    size_t size_bytes = (size_t)(end - bytes);

    struct timeval now;
    gettimeofday(&now, NULL);
    int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_usec / 1000;
    uint8_t *at = put_i64(bytes, 0); /* base offset */
    at = put_i32(at, (int32_t)(size_bytes - BATCH_PREFIX_BYTES));
    at = put_i32(at, -1); /* leader epoch */
    at = put_i8(at, 2);
    at = put_i32(at, 0); /* the checksum, below */
    at = put_i16(at, 0);
    at = put_i32(at, record_count - 1);
    at = put_i64(at, now_ms);
    at = put_i64(at, now_ms);
    at = put_i64(at, -1); /* producer id, epoch and sequence: not idempotent */
    at = put_i16(at, -1);
    at = put_i32(at, -1);
    put_i32(at, record_count);
    put_i32(bytes + AT_CRC, (int32_t)crc32c(bytes + AT_ATTRIBUTES, size_bytes - AT_ATTRIBUTES));
    return (struct record_batch){bytes, size_bytes};
}

void stamp_producer(struct record_batch *batch, int64_t producer_id, int16_t epoch, int32_t sequence) {
    put_i16(batch->bytes + AT_ATTRIBUTES, TRANSACTIONAL);
    uint8_t *at = put_i64(batch->bytes + AT_PRODUCER_ID, producer_id);
    at = put_i16(at, epoch);
    put_i32(at, sequence);
    uint32_t crc = crc32c(batch->bytes + AT_ATTRIBUTES, batch->size_bytes - AT_ATTRIBUTES);
    put_i32(batch->bytes + AT_CRC, (int32_t)crc);
}

struct batch_run walk_batches(const uint8_t *records, size_t size_bytes, int check_crc) {
    struct batch_run run = {-1, 0, 0};
    size_t position = 0;
    while (size_bytes - position >= BATCH_HEADER_BYTES) {
        const uint8_t *batch = records + position;
        int32_t length = get_i32(batch + AT_BATCH_LENGTH);
        if (length < BATCH_HEADER_BYTES - BATCH_PREFIX_BYTES) die("fetched batch has length %d", length);
        size_t whole = (size_t)length + BATCH_PREFIX_BYTES;
        if (whole > size_bytes - position) break; /* cut off by the fetch limit */
        if (batch[AT_MAGIC] != 2) die("fetched batch has magic %d", batch[AT_MAGIC]);
        if (check_crc &&
            crc32c(batch + AT_ATTRIBUTES, whole - AT_ATTRIBUTES) != (uint32_t)get_i32(batch + AT_CRC))
            die("fetched batch at offset %lld has a wrong checksum", (long long)get_i64(batch));
        int32_t last_offset_delta = get_i32(batch + AT_LAST_OFFSET_DELTA);
        run.next_offset = get_i64(batch) + last_offset_delta + 1;
        run.record_count += last_offset_delta + 1;
        position += whole;
    }
    run.whole_bytes = position;
    return run;
}
