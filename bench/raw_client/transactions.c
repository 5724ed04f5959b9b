/* Transactions by KIP-890's protocol: each producer has an id and a connection of its own, and one request at a time:
 * Produce v12 of one batch, which adds its partition, then EndTxn v5, which gives the next epoch.
 *
 * A transaction counts when its end is answered.  The latency is the end's.  A request that the broker refuses because
 * it has not finished the last transaction is sent again after a pause, as clients do; the time counts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "channel.h"
#include "measurement.h"
#include "modes.h"
#include "record_batch.h"
#include "wire.h"

enum {
    FIND_COORDINATOR = 10,
    INIT_PRODUCER_ID = 22,
    PRODUCE = 0,
    END_TXN = 26,
    COORDINATOR_LOAD_IN_PROGRESS = 14,
    COORDINATOR_NOT_AVAILABLE = 15,
    NOT_COORDINATOR = 16,
    NOT_ENOUGH_REPLICAS = 19,
    CONCURRENT_TRANSACTIONS = 51,
    ANSWER_BYTES_MAX = 1 << 16,
    FRAME_SLACK_BYTES = 512,
    ID_BYTES = 64,
    TRANSACTION_TIMEOUT_MS = 60000,
    PRODUCE_TIMEOUT_MS = 30000,
    SEND_AGAIN_AFTER_NS = 2 * 1000 * 1000,
};

enum step { FINDING, STARTING, PRODUCING, ENDING, DONE };

struct producer {
    struct channel channel;
    char id[ID_BYTES];
    int32_t partition;
    int64_t producer_id;
    int16_t epoch;
    enum step step;
    int is_waiting;
    int64_t due_ns; /* the request is not sent before */
    int64_t asked_ns; /* when the step's request was sent first; 0 = not yet */
    struct record_batch batch;
    uint8_t *frame;
    size_t frame_bytes;
    size_t sent_bytes;
    uint8_t received[ANSWER_BYTES_MAX];
    size_t received_bytes;
};

struct run {
    const struct options *options;
    uint64_t started_total;
    struct measurement measurement;
};

/* --- frames ----------------------------------------------------------------------------------------------------- */

static uint8_t *put_length(uint8_t *at, size_t length) {
    uint32_t rest = (uint32_t)length + 1; /* compact: 0 is null */
    while (rest >= 0x80) {
        *at++ = (uint8_t)(rest | 0x80);
        rest >>= 7;
    }
    *at++ = (uint8_t)rest;
    return at;
}

static uint8_t *put_compact(uint8_t *at, const char *text) {
    size_t length = strlen(text);
    at = put_length(at, length);
    memcpy(at, text, length);
    return at + length;
}

static uint8_t *put_head(uint8_t *at, int16_t api, int16_t version, int is_flexible) {
    at = put_i32(at, 0); /* frame size, set by end_frame */
    at = put_i16(at, api);
    at = put_i16(at, version);
    at = put_i32(at, api); /* correlation id: one request at a time */
    at = put_string(at, "bench");
    return is_flexible ? put_i8(at, 0) : at;
}

static void end_frame(struct producer *producer, const uint8_t *end) {
    producer->frame_bytes = (size_t)(end - producer->frame);
    producer->sent_bytes = 0;
    put_i32(producer->frame, (int32_t)(producer->frame_bytes - 4));
}

static void put_find(struct producer *producer) {
    uint8_t *at = put_head(producer->frame, FIND_COORDINATOR, 2, 0);
    at = put_string(at, producer->id);
    end_frame(producer, put_i8(at, 1));
}

static void put_start(struct producer *producer) {
    uint8_t *at = put_head(producer->frame, INIT_PRODUCER_ID, 5, 1);
    at = put_compact(at, producer->id);
    at = put_i32(at, TRANSACTION_TIMEOUT_MS);
    at = put_i64(at, -1);
    at = put_i16(at, -1);
    end_frame(producer, put_i8(at, 0));
}

static void put_produce(const struct options *options, struct producer *producer) {
    stamp_producer(&producer->batch, producer->producer_id, producer->epoch, 0);
    uint8_t *at = put_head(producer->frame, PRODUCE, 12, 1);
    at = put_compact(at, producer->id);
    at = put_i16(at, -1);
    at = put_i32(at, PRODUCE_TIMEOUT_MS);
    at = put_length(at, 1);
    at = put_compact(at, options->topic);
    at = put_length(at, 1);
    at = put_i32(at, producer->partition);
    at = put_length(at, producer->batch.size_bytes);
    memcpy(at, producer->batch.bytes, producer->batch.size_bytes);
    at += producer->batch.size_bytes;
    for (int structure = 0; structure < 3; structure++) at = put_i8(at, 0); /* no tagged fields */
    end_frame(producer, at);
}

static void put_end(struct producer *producer) {
    uint8_t *at = put_head(producer->frame, END_TXN, 5, 1);
    at = put_compact(at, producer->id);
    at = put_i64(at, producer->producer_id);
    at = put_i16(at, producer->epoch);
    at = put_i8(at, 1); /* commit */
    end_frame(producer, put_i8(at, 0));
}

/* --- steps ------------------------------------------------------------------------------------------------------ */

static int may_start(const struct run *run) {
    if (run->measurement.phase == DRAINING || run->measurement.error_count > 0) return 0;
    return run->options->requests == 0 || run->started_total < (uint64_t)run->options->requests;
}

static void ask(struct run *run, struct producer *producer, int64_t now) {
    if (producer->step == PRODUCING && producer->asked_ns == 0) {
        if (!may_start(run)) {
            producer->step = DONE;
            return;
        }
        run->started_total++;
    }
    switch (producer->step) {
    case FINDING: put_find(producer); break;
    case STARTING: put_start(producer); break;
    case PRODUCING: put_produce(run->options, producer); break;
    case ENDING: put_end(producer); break;
    case DONE: return;
    }
    if (producer->asked_ns == 0) producer->asked_ns = now;
    producer->is_waiting = 1;
}

static void go_to(struct producer *producer, enum step step) {
    producer->step = step;
    producer->asked_ns = 0;
    producer->due_ns = 0;
}

static int passes(int16_t error) {
    return error == COORDINATOR_LOAD_IN_PROGRESS || error == COORDINATOR_NOT_AVAILABLE || error == NOT_COORDINATOR ||
           error == NOT_ENOUGH_REPLICAS || error == CONCURRENT_TRANSACTIONS;
}

static void take_answer(struct run *run, struct producer *producer, size_t answer_bytes, int64_t now) {
    const uint8_t *body = producer->received + 4 + 4 + (producer->step == FINDING ? 0 : 1);
    const uint8_t *at = producer->step == PRODUCING ? body + 1 + 1 + strlen(run->options->topic) + 1 + 4 : body + 4;
    if (answer_bytes < (size_t)(at - producer->received) + 2) die("an answer of %zu bytes is too short", answer_bytes);
    int16_t error = get_i16(at);
    producer->is_waiting = 0;
    run->measurement.last_answer_ns = now;
    if (passes(error)) {
        if (producer->step == STARTING) go_to(producer, FINDING);
        producer->due_ns = now + SEND_AGAIN_AFTER_NS;
        return;
    }
    if (error != 0) {
        measurement_error(&run->measurement, error);
        producer->step = DONE;
        return;
    }
    if (producer->step == FINDING) {
        go_to(producer, STARTING);
    } else if (producer->step == PRODUCING) {
        go_to(producer, ENDING);
    } else {
        if (answer_bytes < (size_t)(at - producer->received) + 2 + 8 + 2) die("an answer has no producer id");
        if (producer->step == ENDING)
            measurement_answer(&run->measurement, now, now - producer->asked_ns, run->options->batch_records,
                               (int64_t)producer->batch.size_bytes);
        producer->producer_id = get_i64(at + 2);
        producer->epoch = get_i16(at + 10);
        go_to(producer, PRODUCING);
    }
}

static void write_frame(struct producer *producer) {
    while (producer->sent_bytes < producer->frame_bytes) {
        struct iovec rest = {producer->frame + producer->sent_bytes, producer->frame_bytes - producer->sent_bytes};
        ssize_t sent = channel_send(&producer->channel, &rest, 1);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (sent < 0) die("send: %s", strerror(errno));
        producer->sent_bytes += (size_t)sent;
    }
}

static void read_answer(struct run *run, struct producer *producer) {
    for (;;) {
        ssize_t got = channel_receive(&producer->channel, producer->received + producer->received_bytes,
                                      ANSWER_BYTES_MAX - producer->received_bytes);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got < 0) die("receive: %s", strerror(errno));
        if (got == 0) die("the broker closed the connection");
        producer->received_bytes += (size_t)got;
        if (producer->received_bytes < 4) continue;
        size_t answer_bytes = 4 + (size_t)(uint32_t)get_i32(producer->received);
        if (answer_bytes > ANSWER_BYTES_MAX) die("an answer of %zu bytes", answer_bytes);
        if (producer->received_bytes < answer_bytes) continue;
        if (producer->received_bytes > answer_bytes || !producer->is_waiting) die("an answer came unasked");
        take_answer(run, producer, answer_bytes, now_ns());
        producer->received_bytes = 0;
        return;
    }
}

static void open_producer(const struct options *options, struct producer *producer, size_t index) {
    producer->channel = open_channel(options);
    producer->partition = (int32_t)(index % (size_t)options->partitions);
    /* Ids of this process alone: another one would be fenced. */
    snprintf(producer->id, sizeof producer->id, "bench-%lld-%zu", (long long)now_ns(), index);
    producer->batch = build_record_batch(options->batch_records, options->value_bytes);
    producer->frame = take_memory(producer->batch.size_bytes + strlen(options->topic) + FRAME_SLACK_BYTES);
    go_to(producer, FINDING);
}

int run_transactions(const struct options *options) {
    struct run *run = take_memory(sizeof *run);
    run->options = options;
    size_t count = (size_t)options->connections;
    struct producer *producers = take_memory(sizeof(struct producer) * count);
    struct pollfd *polled = take_memory(sizeof(struct pollfd) * count);
    for (size_t i = 0; i < count; i++) {
        open_producer(options, &producers[i], i);
        polled[i].fd = producers[i].channel.fd;
    }
    measurement_start(&run->measurement, options, options->requests > 0);
    for (;;) {
        int64_t now = now_ns(), wake_ns = 0;
        size_t done_count = 0;
        measurement_tick(&run->measurement, options, now);
        for (size_t i = 0; i < count; i++) {
            struct producer *producer = &producers[i];
            if (!producer->is_waiting && producer->due_ns <= now) ask(run, producer, now);
            if (producer->is_waiting) write_frame(producer);
            else if (producer->step != DONE && (wake_ns == 0 || producer->due_ns < wake_ns)) wake_ns = producer->due_ns;
            done_count += producer->step == DONE;
            int waits = producer->is_waiting &&
                        (producer->sent_bytes < producer->frame_bytes || channel_flush(&producer->channel));
            polled[i].events = (short)(POLLIN | (waits ? POLLOUT : 0));
        }
        if (done_count == count) break;
        wait_for_news(polled, count, options, wake_ns);
        for (size_t i = 0; i < count; i++)
            if (polled[i].revents & (POLLIN | POLLERR | POLLHUP)) read_answer(run, &producers[i]);
    }
    measurement_stop(&run->measurement, now_ns());
    return measurement_print(&run->measurement, options);
}
