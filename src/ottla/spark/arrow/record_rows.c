/* Rows of Arrow's columns as Kafka's records: what `encoder.py` does with numpy, in one pass and one copy.

   Every offset of a column is checked before it is followed, and every record has its room before it is written. */

#include <stdint.h>
#include <string.h>

#define RECORD_BYTES_LIMIT INT64_C(0x80000000)
/* Length, attributes, two deltas, two field lengths and the headers count at their widest. */
#define RECORD_OVERHEAD_BYTES_MAX 36
#define MURMUR2_SEED UINT32_C(0x9747b28c)
#define MURMUR2_MULTIPLIER UINT32_C(0x5bd1e995)

/* Instead of a count. */
enum { UNSOUND = -1, NAMELESS_HEADER = -2, TOO_LARGE = -3, NO_ROOM = -4 };

/* A column of bytes or of lists, in Arrow's layout. */
typedef struct {
    const uint8_t *validity; /* none: no cell is null */
    const uint8_t *offsets;  /* none: every cell is null */
    const uint8_t *data;     /* none for lists */
    int64_t data_end;        /* behind the last byte or element */
    int64_t first;           /* where the column begins in validity and offsets */
    int64_t offset_bytes;    /* 4, or 8 in the large types */
} ottla_column;

typedef struct {
    int64_t first_row; /* counted over all parts */
    int64_t rows_count;
    ottla_column keys;
    ottla_column values;
    ottla_column header_lists;
    ottla_column headers; /* only its validity and first are used */
    ottla_column header_names;
    ottla_column header_values;
} ottla_rows_part;

typedef struct {
    const uint8_t *bytes;
    int64_t length; /* -1 is null */
} cell;

/* Raised with each change of this interface: a library of another source is not used. */
int32_t ottla_record_rows_interface(void) { return 3; }

static inline int is_null(const ottla_column *column, int64_t row)
{
    int64_t bit = column->first + row;
    return column->validity && !(column->validity[bit >> 3] >> (bit & 7) & 1);
}

static inline int64_t offset_at(const ottla_column *column, int64_t index)
{
    if (column->offset_bytes == 8) {
        int64_t wide;
        memcpy(&wide, column->offsets + 8 * index, 8);
        return wide;
    }
    int32_t narrow;
    memcpy(&narrow, column->offsets + 4 * index, 4);
    return narrow;
}

/* The place of a cell that is not null.  Whether it is inside of the data. */
static inline int bounds(const ottla_column *column, int64_t row, int64_t *begin, int64_t *end)
{
    *begin = offset_at(column, column->first + row);
    *end = offset_at(column, column->first + row + 1);
    return *begin >= 0 && *end >= *begin && *end <= column->data_end;
}

static inline int read_cell(const ottla_column *column, int64_t row, cell *found)
{
    int64_t begin, end;
    if (!column->offsets || is_null(column, row)) {
        found->bytes = 0;
        found->length = -1;
        return 1;
    }
    if (!bounds(column, row, &begin, &end))
        return 0;
    found->bytes = end > begin ? column->data + begin : 0;
    found->length = end - begin;
    return 1;
}

static inline int64_t bytes_in(cell one) { return one.length > 0 ? one.length : 0; }

static inline uint64_t to_zigzag(int64_t number) { return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63); }

static inline int64_t varint_bytes(int64_t number)
{
    uint64_t raw = to_zigzag(number);
    int64_t count = 1;
    while (raw >>= 7)
        count++;
    return count;
}

static inline uint8_t *write_varint(uint8_t *at, int64_t number)
{
    uint64_t raw = to_zigzag(number);
    for (; raw >= 128; raw >>= 7)
        *at++ = (uint8_t)(raw | 128);
    *at++ = (uint8_t)raw;
    return at;
}

static inline uint8_t *write_cell(uint8_t *at, cell one)
{
    at = write_varint(at, one.length);
    if (one.length > 0) {
        memcpy(at, one.bytes, (size_t)one.length);
        at += one.length;
    }
    return at;
}

/* The first header of a row and how many there are; whether they are inside of their columns. */
static inline int headers_of(const ottla_rows_part *part, int64_t row, int64_t *first, int64_t *count)
{
    const ottla_column *lists = &part->header_lists;
    int64_t end;
    *first = *count = 0;
    if (!lists->offsets || is_null(lists, row))
        return 1;
    if (!bounds(lists, row, first, &end))
        return 0;
    *count = end - *first;
    return 1;
}

static int read_header(const ottla_rows_part *part, int64_t index, cell *name, cell *value)
{
    if (!read_cell(&part->header_names, index, name) || !read_cell(&part->header_values, index, value))
        return UNSOUND;
    return name->length < 0 || is_null(&part->headers, index) ? NAMELESS_HEADER : 0;
}

/* Of all headers of a row, without their count; or what is wrong. */
static int64_t headers_bytes(const ottla_rows_part *part, int64_t first, int64_t count)
{
    int64_t total = 0;
    for (int64_t index = first; index < first + count; index++) {
        cell name, value;
        int problem = read_header(part, index, &name, &value);
        if (problem)
            return problem;
        total += varint_bytes(name.length) + name.length + varint_bytes(value.length) + bytes_in(value);
        if (total >= RECORD_BYTES_LIMIT)
            return TOO_LARGE;
    }
    return total;
}

/* The part that has a row of all, from a guess on; none when there is no such row. */
static inline const ottla_rows_part *part_of(const ottla_rows_part *parts, int64_t parts_count, int64_t row,
                                             const ottla_rows_part *guess)
{
    if (guess && row >= guess->first_row && row - guess->first_row < guess->rows_count)
        return guess;
    int64_t low = 0, high = parts_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const ottla_rows_part *part = parts + middle;
        if (row < part->first_row)
            high = middle;
        else if (row - part->first_row >= part->rows_count)
            low = middle + 1;
        else
            return part;
    }
    return 0;
}

/* The most that each row takes as a record.  1, or what is wrong. */
int64_t ottla_row_sizes_max(const ottla_rows_part *parts, int64_t parts_count, int64_t *sizes)
{
    for (const ottla_rows_part *part = parts; part < parts + parts_count; part++) {
        for (int64_t row = 0; row < part->rows_count; row++) {
            cell key, value;
            int64_t first, count;
            if (!read_cell(&part->keys, row, &key) || !read_cell(&part->values, row, &value) ||
                !headers_of(part, row, &first, &count))
                return UNSOUND;
            int64_t headers = headers_bytes(part, first, count);
            if (headers < 0)
                return headers;
            sizes[part->first_row + row] = bytes_in(key) + bytes_in(value) + RECORD_OVERHEAD_BYTES_MAX + headers;
        }
    }
    return 1;
}

typedef struct {
    cell key, value;
    int64_t timestamp_delta, offset_delta, first_header, headers_count;
    int64_t body_bytes; /* behind the record's length */
} record;

/* Record `index` of a batch; 1, or what is wrong. */
static inline int64_t read_record(const ottla_rows_part *part, const int64_t *rows, const int64_t *timestamps_ms,
                                  int64_t index, record *one)
{
    int64_t row = rows[index] - part->first_row;
    if (!read_cell(&part->keys, row, &one->key) || !read_cell(&part->values, row, &one->value) ||
        !headers_of(part, row, &one->first_header, &one->headers_count))
        return UNSOUND;
    int64_t headers = one->headers_count ? headers_bytes(part, one->first_header, one->headers_count) : 0;
    if (headers < 0)
        return headers;
    /* It may wrap, as numpy's does. */
    one->timestamp_delta = (int64_t)((uint64_t)timestamps_ms[rows[index]] - (uint64_t)timestamps_ms[rows[0]]);
    one->offset_delta = index;
    one->body_bytes = 1 + varint_bytes(one->timestamp_delta) + varint_bytes(index) + varint_bytes(one->key.length) +
                      bytes_in(one->key) + varint_bytes(one->value.length) + bytes_in(one->value) +
                      varint_bytes(one->headers_count) + headers;
    return one->body_bytes < RECORD_BYTES_LIMIT ? 1 : TOO_LARGE;
}

/* The records of a batch of these rows, numbered over all parts, in this order: the bytes written, or what is wrong. */
int64_t ottla_write_records(const ottla_rows_part *parts, int64_t parts_count, const int64_t *rows, int64_t rows_count,
                            const int64_t *timestamps_ms, uint8_t *target, int64_t target_bytes)
{
    const ottla_rows_part *part = 0;
    uint8_t *at = target;
    for (int64_t index = 0; index < rows_count; index++) {
        record one;
        part = part_of(parts, parts_count, rows[index], part);
        if (!part)
            return UNSOUND;
        int64_t found = read_record(part, rows, timestamps_ms, index, &one);
        if (found < 0)
            return found;
        if (varint_bytes(one.body_bytes) + one.body_bytes > target_bytes - (at - target))
            return NO_ROOM;
        at = write_varint(at, one.body_bytes);
        *at++ = 0; /* attributes */
        at = write_varint(at, one.timestamp_delta);
        at = write_varint(at, one.offset_delta);
        at = write_cell(at, one.key);
        at = write_cell(at, one.value);
        at = write_varint(at, one.headers_count);
        for (int64_t header = one.first_header; header < one.first_header + one.headers_count; header++) {
            cell name, value;
            if (read_header(part, header, &name, &value))
                return UNSOUND;
            at = write_cell(at, name);
            at = write_cell(at, value);
        }
    }
    return at - target;
}

static inline uint32_t murmur2(const uint8_t *data, int64_t length)
{
    uint32_t hash = MURMUR2_SEED ^ (uint32_t)length;
    for (; length >= 4; length -= 4, data += 4) {
        uint32_t word = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        word *= MURMUR2_MULTIPLIER;
        word ^= word >> 24;
        hash = hash * MURMUR2_MULTIPLIER ^ word * MURMUR2_MULTIPLIER;
    }
    if (length > 2)
        hash ^= (uint32_t)data[2] << 16;
    if (length > 1)
        hash ^= (uint32_t)data[1] << 8;
    if (length > 0)
        hash = (hash ^ data[0]) * MURMUR2_MULTIPLIER;
    hash ^= hash >> 13;
    hash *= MURMUR2_MULTIPLIER;
    return hash ^ hash >> 15;
}

/* murmur2 of every row's key, -1 for none.  1, or what is wrong. */
int64_t ottla_key_hashes(const ottla_rows_part *parts, int64_t parts_count, int64_t *hashes)
{
    for (const ottla_rows_part *part = parts; part < parts + parts_count; part++) {
        for (int64_t row = 0; row < part->rows_count; row++) {
            cell key;
            if (!read_cell(&part->keys, row, &key))
                return UNSOUND;
            hashes[part->first_row + row] = key.length < 0 ? -1 : (int64_t)murmur2(key.bytes, key.length);
        }
    }
    return 1;
}

/* The partition of every row: by the hash of its key, or, where that is negative, by its run.  Rows without a key form
   runs of run_bytes, which go to the partitions in turn, from first_run on. */
int64_t ottla_choose_partitions(const int64_t *hashes, const int64_t *sizes, int64_t rows_count,
                                int64_t partitions_count, int64_t first_run, int64_t run_bytes, int64_t *partitions)
{
    if (partitions_count < 1 || partitions_count > INT32_MAX || first_run < 0 || run_bytes < 1)
        return UNSOUND;
    int64_t used = 0, run_end = run_bytes, turn = first_run % partitions_count;
    for (int64_t row = 0; row < rows_count; row++) {
        if (hashes[row] >= 0) {
            partitions[row] = (uint32_t)(hashes[row] & 0x7fffffff) % (uint32_t)partitions_count;
            continue;
        }
        for (used += sizes[row]; used >= run_end; run_end += run_bytes)
            turn = turn + 1 < partitions_count ? turn + 1 : 0;
        partitions[row] = turn;
    }
    return 1;
}

/* The indices of the rows of each partition together, in their order, and where those of each end.  1, or what is
   wrong. */
int64_t ottla_group_rows(const int64_t *partitions, int64_t rows_count, int64_t partitions_count, int64_t *order,
                         int64_t *ends)
{
    memset(ends, 0, (size_t)partitions_count * sizeof *ends);
    for (int64_t row = 0; row < rows_count; row++) {
        if (partitions[row] < 0 || partitions[row] >= partitions_count)
            return UNSOUND;
        ends[partitions[row]]++;
    }
    int64_t start = 0;
    for (int64_t partition = 0; partition < partitions_count; partition++) {
        int64_t count = ends[partition];
        ends[partition] = start;
        start += count;
    }
    for (int64_t row = 0; row < rows_count; row++)
        order[ends[partitions[row]]++] = row;
    return 1;
}
