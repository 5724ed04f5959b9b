/* The fields of all records of a buffer: what `record_fields.py` reads with numpy, in one pass.

   It reads nothing outside of a batch's area, and accepts exactly what numpy accepts; where it refuses, the caller
   lets numpy find out what is wrong. */

#include <stdint.h>

#define VARINT_BYTES_MAX 5
#define VARLONG_BYTES_MAX 10
#define HEADER_BYTES_MIN 2

/* The rows of `fields`, each `count` long: the order of `RecordFields`. */
enum { TIMESTAMP_DELTA, OFFSET_DELTA, KEY_AT, KEY_LENGTH, VALUE_AT, VALUE_LENGTH, HEADERS_COUNT, HEADERS_AT, END };

/* Raised with each change of this interface: a library of another source is not used. */
int32_t ottla_record_fields_interface(void) { return 1; }

/* The position behind the number, or -1. */
static inline int64_t varint(const uint8_t *data, int64_t at, int64_t end, int bytes_max, uint64_t *value)
{
    uint64_t raw = 0;
    for (int index = 0; index < bytes_max; index++) {
        if (at >= end)
            return -1;
        uint8_t byte = data[at++];
        raw |= (uint64_t)(byte & 127) << (7 * index);
        if (byte < 128) {
            *value = raw;
            return at;
        }
    }
    return -1;
}

static inline int64_t from_zigzag(uint64_t raw) { return (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1); }

/* A length (-1 is null) and so many bytes: the position behind them, or -1. */
static inline int64_t span(const uint8_t *data, int64_t at, int64_t end, int64_t *place, int64_t *length)
{
    uint64_t raw;
    at = varint(data, at, end, VARINT_BYTES_MAX, &raw);
    if (at < 0)
        return -1;
    *place = at;
    *length = from_zigzag(raw);
    int64_t behind = at + (*length > 0 ? *length : 0);
    return *length < -1 || behind > end ? -1 : behind;
}

/* Areas `[positions[i], ends[i])` hold `counts[i]` records, `count` in all.  Whether all are sound. */
int32_t ottla_read_record_fields(const uint8_t *data, int64_t areas_count, const int64_t *positions, const int64_t *ends,
                                 const int64_t *counts, int64_t count, int64_t *fields)
{
    int64_t record = 0;
    for (int64_t area = 0; area < areas_count; area++) {
        int64_t at = positions[area];
        int64_t area_end = ends[area];
        for (int64_t left = counts[area]; left > 0; left--, record++) {
            uint64_t raw;
            int64_t *field = fields + record;
            at = varint(data, at, area_end, VARINT_BYTES_MAX, &raw);
            if (at < 0 || raw & 1 || (int64_t)(raw >> 1) > area_end - at)
                return 0;
            int64_t end = at + (int64_t)(raw >> 1);
            if (at >= end)
                return 0;
            at = varint(data, at + 1, end, VARLONG_BYTES_MAX, &raw); /* behind the attributes */
            if (at < 0)
                return 0;
            field[TIMESTAMP_DELTA * count] = from_zigzag(raw);
            at = varint(data, at, end, VARINT_BYTES_MAX, &raw);
            if (at < 0)
                return 0;
            field[OFFSET_DELTA * count] = from_zigzag(raw);
            at = span(data, at, end, field + KEY_AT * count, field + KEY_LENGTH * count);
            if (at < 0)
                return 0;
            at = span(data, at, end, field + VALUE_AT * count, field + VALUE_LENGTH * count);
            if (at < 0)
                return 0;
            at = varint(data, at, end, VARINT_BYTES_MAX, &raw);
            if (at < 0)
                return 0;
            int64_t headers_count = from_zigzag(raw);
            if (headers_count < 0 || headers_count * HEADER_BYTES_MIN > end - at || (headers_count == 0 && at != end))
                return 0;
            field[HEADERS_COUNT * count] = headers_count;
            field[HEADERS_AT * count] = at;
            field[END * count] = end;
            at = end;
        }
        if (at != area_end)
            return 0;
    }
    return 1;
}
