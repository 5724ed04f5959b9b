/* Produce v7 (API key 0): one topic, one partition and one prebuilt batch per request, F requests in flight.
 *
 * Frame number n of a connection lives in slot n % F.  Answers come in order, so a slot is free again when its
 * answer has been read: frames answered <= written <= assigned <= answered + F. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "channel.h"
#include "measurement.h"
#include "modes.h"
#include "record_batch.h"
#include "wire.h"

enum { AT_CORRELATION_ID = 8, VECTORS_MAX = 256, RECEIVE_BYTES = 1 << 16, SMALL_BATCH_BYTES = 1 << 14, EVENTS_MAX = 512 };

struct slot {
    uint8_t *bytes;
    int64_t assigned_ns;
    int32_t partition;
};

struct producer {
    struct channel channel;
    uint32_t watched;    /* the events that epoll waits for */
    int32_t *partitions; /* that it writes to in turn; NULL = all, in one turn of all connections */
    size_t partitions_count;
    size_t next_partition;
    uint64_t assigned;
    uint64_t written;
    uint64_t answered;
    size_t partly_written; /* bytes of frame number `written` that are out already */
    struct slot *slots;
    uint8_t *received;
    size_t received_bytes;
};

struct run {
    const struct options *options;
    struct record_batch batch;
    size_t own_bytes;    /* the part of a frame that lies in its slot */
    size_t shared_bytes; /* the rest, the batch itself when it is large: one copy for all frames */
    size_t at_partition;
    size_t answer_bytes;
    int epoll;
    int has_one_writer; /* of each partition: its offsets then are dense */
    uint64_t assigned_total;
    uint64_t answered_total;
    int64_t started_ns;
    int64_t *next_offsets; /* per partition, to check that the broker's offsets are dense */
    struct measurement measurement;
};

static uint8_t *put_head(uint8_t *at, const struct run *run, size_t *at_partition) {
    uint8_t *start = at;
    at = put_i32(at, 0); /* frame size, set by the caller */
    at = put_i16(at, 0); /* Produce */
    at = put_i16(at, 7);
    at = put_i32(at, 0); /* correlation id, set per request */
    at = put_string(at, "bench");
    at = put_i16(at, -1); /* no transactional id */
    at = put_i16(at, (int16_t)run->options->acks);
    at = put_i32(at, 30000);
    at = put_i32(at, 1);
    at = put_string(at, run->options->topic);
    at = put_i32(at, 1);
    *at_partition = (size_t)(at - start);
    at = put_i32(at, 0); /* partition, set per request */
    return put_i32(at, (int32_t)run->batch.size_bytes);
}

static void prepare_slots(struct run *run, struct producer *producer) {
    producer->slots = take_memory(sizeof(struct slot) * (size_t)run->options->in_flight);
    producer->received = take_memory(RECEIVE_BYTES);
    int shares_batch = run->batch.size_bytes > SMALL_BATCH_BYTES;
    for (int i = 0; i < run->options->in_flight; i++) {
        uint8_t *bytes = take_memory(512 + (shares_batch ? 0 : run->batch.size_bytes));
        uint8_t *end = put_head(bytes, run, &run->at_partition);
        put_i32(bytes, (int32_t)((size_t)(end - bytes) + run->batch.size_bytes - 4));
        if (!shares_batch) {
            memcpy(end, run->batch.bytes, run->batch.size_bytes);
            end += run->batch.size_bytes;
        }
        run->own_bytes = (size_t)(end - bytes);
        producer->slots[i].bytes = bytes;
    }
    run->shared_bytes = shares_batch ? run->batch.size_bytes : 0;
}

static int may_send(const struct run *run) {
    if (run->measurement.phase == DRAINING || run->measurement.error_count > 0) return 0;
    return run->options->requests == 0 || run->assigned_total < (uint64_t)run->options->requests;
}

/* When the next request is to begin; 0 = at once.  Its latency counts from then: a broker that falls behind is not
 * flattered by requests that were never sent. */
static int64_t next_due_ns(const struct run *run) {
    if (run->options->requests_per_s <= 0) return 0;
    return run->started_ns + (int64_t)((double)run->assigned_total / run->options->requests_per_s * 1e9);
}

static int32_t next_partition(const struct run *run, struct producer *producer) {
    if (producer->partitions == NULL) return (int32_t)(run->assigned_total % (uint64_t)run->options->partitions);
    return producer->partitions[producer->next_partition++ % producer->partitions_count];
}

static void assign_frames(struct run *run, struct producer *producer, int64_t now) {
    uint64_t in_flight = (uint64_t)run->options->in_flight;
    while (producer->assigned - producer->answered < in_flight && may_send(run) && next_due_ns(run) <= now) {
        struct slot *slot = &producer->slots[producer->assigned % in_flight];
        slot->partition = next_partition(run, producer);
        slot->assigned_ns = next_due_ns(run) > 0 ? next_due_ns(run) : now;
        put_i32(slot->bytes + AT_CORRELATION_ID, (int32_t)(producer->assigned & 0x7FFFFFFF));
        put_i32(slot->bytes + run->at_partition, slot->partition);
        producer->assigned++;
        run->assigned_total++;
    }
}

/* Only when a slot is free can a request that is due begin; otherwise an answer must come first. */
static int64_t wake_ns(const struct run *run, const struct producer *producers, size_t count) {
    if (run->options->requests_per_s <= 0) return 0;
    for (size_t i = 0; i < count; i++)
        if (producers[i].assigned - producers[i].answered < (uint64_t)run->options->in_flight) return next_due_ns(run);
    return 0;
}

static int gather(const struct run *run, const struct producer *producer, struct iovec *vectors) {
    int count = 0;
    size_t skip = producer->partly_written;
    for (uint64_t frame = producer->written; frame < producer->assigned && count + 2 <= VECTORS_MAX; frame++) {
        uint8_t *own = producer->slots[frame % (uint64_t)run->options->in_flight].bytes;
        size_t own_skip = skip < run->own_bytes ? skip : run->own_bytes;
        if (own_skip < run->own_bytes)
            vectors[count++] = (struct iovec){own + own_skip, run->own_bytes - own_skip};
        skip -= own_skip;
        if (run->shared_bytes > 0)
            vectors[count++] = (struct iovec){run->batch.bytes + skip, run->shared_bytes - skip};
        skip = 0;
    }
    return count;
}

static void write_frames(struct run *run, struct producer *producer) {
    size_t frame_bytes = run->own_bytes + run->shared_bytes;
    while (producer->written < producer->assigned) {
        struct iovec vectors[VECTORS_MAX];
        ssize_t sent = channel_send(&producer->channel, vectors, (size_t)gather(run, producer, vectors));
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (sent < 0) die("send: %s", strerror(errno));
        size_t progress = producer->partly_written + (size_t)sent;
        producer->written += progress / frame_bytes;
        producer->partly_written = progress % frame_bytes;
    }
}

static void take_answer(struct run *run, struct producer *producer, const uint8_t *answer, int64_t now) {
    const struct options *options = run->options;
    if (producer->answered == producer->written) die("an answer came before its request was sent");
    const struct slot *slot = &producer->slots[producer->answered % (uint64_t)options->in_flight];
    if (get_i32(answer + 4) != (int32_t)(producer->answered & 0x7FFFFFFF)) die("answers came out of order");
    const uint8_t *at = answer + 8 + 4 + 2 + strlen(options->topic) + 4;
    if (get_i32(at) != slot->partition) die("answered partition %d, asked %d", get_i32(at), slot->partition);
    int16_t error = get_i16(at + 4);
    int64_t base_offset = get_i64(at + 6);
    producer->answered++;
    run->answered_total++;
    if (error != 0) {
        measurement_error(&run->measurement, error);
        return;
    }
    int64_t *next_offset = &run->next_offsets[slot->partition];
    if (base_offset < 0 || (run->has_one_writer && *next_offset >= 0 && base_offset != *next_offset))
        die("partition %d: base offset %lld, expected %lld", slot->partition, (long long)base_offset,
            (long long)*next_offset);
    *next_offset = base_offset + options->batch_records;
    measurement_answer(&run->measurement, now, now - slot->assigned_ns, options->batch_records,
                       (int64_t)run->batch.size_bytes);
}

/* What one receive gives. */
static void read_some(struct run *run, struct producer *producer) {
    ssize_t got = channel_receive(&producer->channel, producer->received + producer->received_bytes,
                                  RECEIVE_BYTES - producer->received_bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) die("receive: %s", strerror(errno));
    if (got == 0) die("the broker closed the connection with %llu requests unanswered",
                      (unsigned long long)(producer->assigned - producer->answered));
    int64_t now = now_ns();
    producer->received_bytes += (size_t)got;
    size_t position = 0;
    while (producer->received_bytes - position >= 4) {
        const uint8_t *answer = producer->received + position;
        size_t answer_bytes = 4 + (size_t)(uint32_t)get_i32(answer);
        if (answer_bytes != run->answer_bytes)
            die("a produce answer has %zu bytes, expected %zu", answer_bytes, run->answer_bytes);
        if (producer->received_bytes - position < answer_bytes) break;
        take_answer(run, producer, answer, now);
        position += answer_bytes;
    }
    producer->received_bytes -= position;
    memmove(producer->received, producer->received + position, producer->received_bytes);
}

static void read_answers(struct run *run, struct producer *producer) {
    uint64_t answered;
    do {
        answered = producer->answered;
        read_some(run, producer);
    } while (producer->answered > answered && channel_holds_received(&producer->channel));
}

/* Thousands of connections need more descriptors than the usual soft limit. */
static void allow_descriptors(int connections) {
    enum { OTHERS = 16 };
    struct rlimit limit;
    rlim_t needed = (rlim_t)connections + OTHERS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) die("getrlimit: %s", strerror(errno));
    if (limit.rlim_cur >= needed) return;
    if (limit.rlim_max < needed)
        die("%d connections need %d descriptors, the hard limit is %llu", connections, (int)needed,
            (unsigned long long)limit.rlim_max);
    limit.rlim_cur = needed;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) die("setrlimit: %s", strerror(errno));
}

struct leaders {
    int *of_partition; /* the port of each partition's leader */
    int *ports;        /* each port once */
    size_t ports_count;
};

static struct leaders parse_leaders(const struct options *options) {
    struct leaders leaders = {.of_partition = take_memory(sizeof(int) * (size_t)options->partitions),
                              .ports = take_memory(sizeof(int) * (size_t)options->partitions)};
    const char *at = options->leaders;
    for (int i = 0; i < options->partitions; i++) {
        char *end;
        long port = strtol(at, &end, 10);
        if (end == at || port < 1 || port > 65535 || *end != (i + 1 < options->partitions ? ',' : '\0'))
            die("--leaders must be %d ports, not '%s'", options->partitions, options->leaders);
        leaders.of_partition[i] = (int)port;
        size_t known = 0;
        while (known < leaders.ports_count && leaders.ports[known] != port) known++;
        if (known == leaders.ports_count) leaders.ports[leaders.ports_count++] = (int)port;
        at = end + 1;
    }
    return leaders;
}

/* Its own partition where there are as many connections as partitions, else those of one broker in turn.  Returns the
 * broker's port. */
static int take_partitions(struct producer *producer, size_t index, const struct options *options,
                           const struct leaders *leaders) {
    size_t partitions = (size_t)options->partitions;
    int keeps_to_one = (size_t)options->connections >= partitions;
    int port = keeps_to_one ? leaders->of_partition[index % partitions] : leaders->ports[index % leaders->ports_count];
    producer->partitions = take_memory(sizeof(int32_t) * (keeps_to_one ? 1 : partitions));
    for (size_t i = 0; i < partitions; i++)
        if (keeps_to_one ? i == index % partitions : leaders->of_partition[i] == port)
            producer->partitions[producer->partitions_count++] = (int32_t)i;
    return port;
}

static void open_producer(struct run *run, struct producer *producer, size_t index, const struct leaders *leaders) {
    struct options own = *run->options;
    if (leaders->of_partition != NULL) own.port = take_partitions(producer, index, run->options, leaders);
    producer->channel = open_channel(&own);
    producer->watched = EPOLLIN;
    struct epoll_event event = {.events = producer->watched, .data.ptr = producer};
    if (epoll_ctl(run->epoll, EPOLL_CTL_ADD, producer->channel.fd, &event) != 0) die("epoll: %s", strerror(errno));
    prepare_slots(run, producer);
}

/* Sends what may be sent, and waits for the socket where it accepts no more. */
static void serve(struct run *run, struct producer *producer, int64_t now) {
    assign_frames(run, producer, now);
    write_frames(run, producer);
    int waits = producer->written < producer->assigned || channel_flush(&producer->channel);
    uint32_t watched = EPOLLIN | (waits ? EPOLLOUT : 0);
    if (watched == producer->watched) return;
    producer->watched = watched;
    struct epoll_event event = {.events = watched, .data.ptr = producer};
    if (epoll_ctl(run->epoll, EPOLL_CTL_MOD, producer->channel.fd, &event) != 0) die("epoll: %s", strerror(errno));
}

/* Waits, then reads the answers that have come and serves their connections. */
static void serve_ready(struct run *run, int64_t wake) {
    struct pollfd polled = {.fd = run->epoll, .events = POLLIN};
    wait_for_news(&polled, 1, run->options, wake);
    struct epoll_event events[EVENTS_MAX];
    int ready = epoll_wait(run->epoll, events, EVENTS_MAX, 0);
    if (ready < 0 && errno != EINTR) die("epoll: %s", strerror(errno));
    for (int i = 0; i < ready; i++) {
        struct producer *producer = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) read_answers(run, producer);
        int64_t now = now_ns();
        measurement_tick(&run->measurement, run->options, now);
        serve(run, producer, now);
    }
}

int run_produce(const struct options *options) {
    struct run *run = take_memory(sizeof *run);
    run->options = options;
    run->batch = build_record_batch(options->batch_records, options->value_bytes);
    /* size, correlation id, topic array and name, partition array, one partition, throttle time */
    run->answer_bytes = 4 + 4 + 4 + 2 + strlen(options->topic) + 4 + (4 + 2 + 8 + 8 + 8) + 4;
    run->next_offsets = take_memory(sizeof(int64_t) * (size_t)options->partitions);
    for (int i = 0; i < options->partitions; i++) run->next_offsets[i] = -1;

    size_t count = (size_t)options->connections;
    struct leaders leaders = {0};
    if (options->leaders != NULL) leaders = parse_leaders(options);
    run->has_one_writer = count == 1 || (options->leaders != NULL && count == (size_t)options->partitions);
    allow_descriptors(options->connections);
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (run->epoll < 0) die("epoll: %s", strerror(errno));
    struct producer *producers = take_memory(sizeof(struct producer) * count);
    for (size_t i = 0; i < count; i++) open_producer(run, &producers[i], i, &leaders);
    measurement_start(&run->measurement, options, options->requests > 0);
    run->started_ns = now_ns();
    for (size_t i = 0; i < count; i++) serve(run, &producers[i], run->started_ns);
    while (run->assigned_total > run->answered_total || may_send(run)) {
        serve_ready(run, may_send(run) ? wake_ns(run, producers, count) : 0);
        int64_t now = now_ns();
        measurement_tick(&run->measurement, options, now);
        if (next_due_ns(run) == 0) continue; /* each answer lets its own connection send */
        for (size_t i = 0; i < count; i++) serve(run, &producers[i], now);
    }
    measurement_stop(&run->measurement, now_ns());
    return measurement_print(&run->measurement, options);
}
