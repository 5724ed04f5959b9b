/* Fetch v11 (API key 1): each connection reads one partition from offset 0 to its end, again and again, with one
 * request in flight, as a consumer does.  It moves on by the headers of the whole batches that it received. */
#include <errno.h>
#include <stdlib.h>

#include "channel.h"
#include "measurement.h"
#include "modes.h"
#include "record_batch.h"
#include "wire.h"

enum { AT_CORRELATION_ID = 8, RESPONSE_SLACK_BYTES = 64 << 20 };

struct fetcher {
    struct channel channel;
    int32_t partition;
    int64_t fetch_offset;
    int64_t passes;
    int64_t sent_ns;
    int32_t correlation_id;
    int is_waiting;
    uint8_t *request;
    size_t request_bytes;
    size_t at_fetch_offset;
    uint8_t *received;
    size_t received_bytes;
    size_t capacity_bytes;
};

struct run {
    const struct options *options;
    struct measurement measurement;
};

static void prepare_request(const struct options *options, struct fetcher *fetcher) {
    uint8_t *start = fetcher->request = take_memory(512);
    uint8_t *at = put_i32(start, 0); /* frame size, below */
    at = put_i16(at, 1);             /* Fetch */
    at = put_i16(at, 11);
    at = put_i32(at, 0); /* correlation id, set per request */
    at = put_string(at, "bench");
    at = put_i32(at, -1); /* a consumer */
    at = put_i32(at, 500);
    at = put_i32(at, 1);
    at = put_i32(at, 1 << 30); /* only the partition's limit counts */
    at = put_i8(at, (int8_t)options->isolation);
    at = put_i32(at, 0); /* no fetch session */
    at = put_i32(at, -1);
    at = put_i32(at, 1);
    at = put_string(at, options->topic);
    at = put_i32(at, 1);
    at = put_i32(at, fetcher->partition);
    at = put_i32(at, -1); /* current leader epoch: unknown */
    fetcher->at_fetch_offset = (size_t)(at - start);
    at = put_i64(at, 0);
    at = put_i64(at, -1);
    at = put_i32(at, options->partition_bytes_max);
    at = put_i32(at, 0); /* forgotten topics */
    at = put_string(at, "");
    fetcher->request_bytes = (size_t)(at - start);
    put_i32(start, (int32_t)(fetcher->request_bytes - 4));
}

static void send_request(struct fetcher *fetcher, int64_t now) {
    put_i32(fetcher->request + AT_CORRELATION_ID, ++fetcher->correlation_id);
    put_i64(fetcher->request + fetcher->at_fetch_offset, fetcher->fetch_offset);
    fetcher->sent_ns = now;
    fetcher->is_waiting = 1;
    /* One small request into an idle socket always fits its send buffer. */
    struct iovec request = {fetcher->request, fetcher->request_bytes};
    ssize_t sent = channel_send(&fetcher->channel, &request, 1);
    if (sent != (ssize_t)fetcher->request_bytes) die("send: %s", sent < 0 ? strerror(errno) : "cut short");
}

static const uint8_t *need(const uint8_t *at, const uint8_t *end, size_t size_bytes) {
    if ((size_t)(end - at) < size_bytes) die("a fetch answer ends early");
    return at + size_bytes;
}

/* Gives the record set of the one partition asked for; dies on what a right answer cannot hold. */
static const uint8_t *open_answer(struct run *run, const struct fetcher *fetcher, size_t answer_bytes,
                                  int64_t *high_watermark, size_t *records_bytes) {
    const uint8_t *at = fetcher->received, *end = at + answer_bytes;
    size_t fixed = 4 + 4 + 4 + 2 + 4 + 4 + 2 + strlen(run->options->topic) + 4 + 4 + 2 + 8 + 8 + 8 + 4;
    need(at, end, 22);
    if (get_i32(at + 4) != fetcher->correlation_id) die("a fetch answer has another correlation id");
    int16_t error = get_i16(at + 12);
    if (error != 0) measurement_error(&run->measurement, error);
    if (error != 0 || get_i32(at + 18) != 1) return NULL;
    need(at, end, fixed);
    at += 22 + 2 + strlen(run->options->topic) + 4;
    if (get_i32(at) != fetcher->partition) die("a fetch answer is of partition %d", get_i32(at));
    error = get_i16(at + 4);
    *high_watermark = get_i64(at + 6);
    if (error != 0) measurement_error(&run->measurement, error);
    if (error != 0) return NULL;
    int32_t aborted_count = get_i32(at + 30);
    at += 34;
    if (aborted_count > 0) at = need(at, end, 16 * (size_t)aborted_count);
    const uint8_t *records = need(at, end, 4 + 4); /* preferred read replica, size of the record set */
    int32_t size_bytes = get_i32(at + 4);
    if (size_bytes < 0) size_bytes = 0;
    need(records, end, (size_t)size_bytes);
    *records_bytes = (size_t)size_bytes;
    return records;
}

static void take_answer(struct run *run, struct fetcher *fetcher, size_t answer_bytes, int64_t now) {
    int64_t high_watermark = 0;
    size_t records_bytes = 0;
    fetcher->is_waiting = 0;
    const uint8_t *records = open_answer(run, fetcher, answer_bytes, &high_watermark, &records_bytes);
    if (records == NULL) {
        if (run->measurement.error_count == 0) die("a fetch answer without error lacks the topic asked for");
        return;
    }
    if (high_watermark == 0) die("partition %d is empty: produce to it first", fetcher->partition);
    struct batch_run batches = walk_batches(records, records_bytes, run->options->check_crc);
    if (batches.next_offset < 0) die("no whole batch in a fetch answer of %zu bytes", records_bytes);
    measurement_answer(&run->measurement, now, now - fetcher->sent_ns, batches.record_count,
                       (int64_t)batches.whole_bytes);
    fetcher->fetch_offset = batches.next_offset;
    if (fetcher->fetch_offset >= high_watermark) {
        fetcher->fetch_offset = 0;
        fetcher->passes++;
    }
}

/* Reads until the socket is dry or the one answer is whole. */
static void read_answer(struct run *run, struct fetcher *fetcher) {
    for (;;) {
        ssize_t got = channel_receive(&fetcher->channel, fetcher->received + fetcher->received_bytes,
                                      fetcher->capacity_bytes - fetcher->received_bytes);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got < 0) die("receive: %s", strerror(errno));
        if (got == 0) die("the broker closed the connection");
        fetcher->received_bytes += (size_t)got;
        if (fetcher->received_bytes < 4) continue;
        size_t answer_bytes = 4 + (size_t)(uint32_t)get_i32(fetcher->received);
        if (answer_bytes > fetcher->capacity_bytes) {
            if (answer_bytes > (size_t)run->options->partition_bytes_max + RESPONSE_SLACK_BYTES)
                die("a fetch answer of %zu bytes is far over the limit asked for", answer_bytes);
            fetcher->received = realloc(fetcher->received, answer_bytes);
            if (fetcher->received == NULL) die("no memory for %zu bytes", answer_bytes);
            fetcher->capacity_bytes = answer_bytes;
        }
        if (fetcher->received_bytes < answer_bytes) continue;
        if (fetcher->received_bytes > answer_bytes) die("more bytes came than were asked for");
        take_answer(run, fetcher, answer_bytes, now_ns());
        fetcher->received_bytes = 0;
        return;
    }
}

static int may_send(const struct run *run, const struct fetcher *fetcher) {
    if (run->measurement.phase == DRAINING || run->measurement.error_count > 0) return 0;
    return run->options->passes == 0 || fetcher->passes < run->options->passes;
}

int run_fetch(const struct options *options) {
    struct run *run = take_memory(sizeof *run);
    run->options = options;
    size_t count = (size_t)options->connections;
    struct fetcher *fetchers = take_memory(sizeof(struct fetcher) * count);
    struct pollfd *polled = take_memory(sizeof(struct pollfd) * count);
    for (size_t i = 0; i < count; i++) {
        struct fetcher *fetcher = &fetchers[i];
        fetcher->channel = open_channel(options);
        polled[i].fd = fetcher->channel.fd;
        polled[i].events = POLLIN;
        fetcher->partition = (int32_t)(i % (size_t)options->partitions);
        fetcher->capacity_bytes = (size_t)options->partition_bytes_max + 4096;
        fetcher->received = take_memory(fetcher->capacity_bytes);
        prepare_request(options, fetcher);
    }
    measurement_start(&run->measurement, options, options->passes > 0);
    for (;;) {
        int64_t now = now_ns();
        measurement_tick(&run->measurement, options, now);
        int waiting_count = 0;
        for (size_t i = 0; i < count; i++) {
            if (!fetchers[i].is_waiting && may_send(run, &fetchers[i])) send_request(&fetchers[i], now);
            waiting_count += fetchers[i].is_waiting;
        }
        if (waiting_count == 0) break;
        wait_for_news(polled, count, options, 0);
        for (size_t i = 0; i < count; i++)
            if (polled[i].revents != 0) read_answer(run, &fetchers[i]);
    }
    measurement_stop(&run->measurement, now_ns());
    return measurement_print(&run->measurement, options);
}
