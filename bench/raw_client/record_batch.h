/* Record batches, format v2 (magic 2), uncompressed, without keys and headers. */
#ifndef RAW_CLIENT_RECORD_BATCH_H
#define RAW_CLIENT_RECORD_BATCH_H

#include <stddef.h>
#include <stdint.h>

enum { BATCH_HEADER_BYTES = 61, BATCH_PREFIX_BYTES = 12 };

struct record_batch {
    uint8_t *bytes;
    size_t size_bytes;
};

/* What one pass over a fetched record set saw: whole batches only. */
struct batch_run {
    int64_t next_offset; /* one past the last record of the last whole batch; -1 if there was none */
    int64_t record_count;
    size_t whole_bytes;
};

/* A valid batch of record_count records with values of value_bytes each, stamped with the time now.
 * Base offset and leader epoch are zero: they lie outside the checksum and are the broker's to fill in. */
struct record_batch build_record_batch(int record_count, int value_bytes);

/* Makes the batch one of a transactional producer; the checksum follows. */
void stamp_producer(struct record_batch *batch, int64_t producer_id, int16_t epoch, int32_t sequence);

/* Walks the headers of a record set; a last batch that was cut off is left out.
 * Dies when a header is inconsistent, or when check_crc is set and a checksum is wrong. */
struct batch_run walk_batches(const uint8_t *records, size_t size_bytes, int check_crc);

#endif
