#include "measurement.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

#include "wire.h"

static void open_window(struct measurement *measurement, const struct options *options, int64_t now) {
    measurement->phase = MEASURING;
    measurement->started_ns = now;
    measurement->phase_ends_ns = now + (int64_t)(options->seconds * 1e9);
    measurement->cpu_started = cpu_seconds();
}

void measurement_start(struct measurement *measurement, const struct options *options, int by_count) {
    int64_t now = now_ns();
    *measurement = (struct measurement){.last_answer_ns = now};
    if (by_count) {
        open_window(measurement, options, now);
        measurement->phase_ends_ns = INT64_MAX;
    } else {
        measurement->phase_ends_ns = now + (int64_t)(options->warmup_s * 1e9);
    }
}

void measurement_tick(struct measurement *measurement, const struct options *options, int64_t now) {
    if (now - measurement->last_answer_ns > SILENCE_S_MAX * INT64_C(1000000000))
        die("the broker has not answered for %d s", SILENCE_S_MAX);
    if (measurement->phase == WARMING_UP && now >= measurement->phase_ends_ns) open_window(measurement, options, now);
    if (measurement->phase == MEASURING && now >= measurement->phase_ends_ns) measurement_stop(measurement, now);
}

void measurement_stop(struct measurement *measurement, int64_t now) {
    if (measurement->phase != MEASURING) return;
    measurement->phase = DRAINING;
    measurement->stopped_ns = now;
    measurement->cpu_stopped = cpu_seconds();
}

void measurement_answer(struct measurement *measurement, int64_t now, int64_t latency_ns, int64_t records,
                        int64_t bytes) {
    measurement->last_answer_ns = now;
    measurement->requests_total++;
    measurement->records_total += (uint64_t)records;
    if (measurement->phase != MEASURING) return;
    measurement->requests++;
    measurement->records += (uint64_t)records;
    measurement->bytes += (uint64_t)bytes;
    histogram_add(&measurement->latency, latency_ns);
}

void measurement_error(struct measurement *measurement, int16_t code) {
    measurement->error_count++;
    if (code >= -1 && code + 1 < ERROR_CODES) measurement->errors[code + 1]++;
}

int measurement_print(const struct measurement *measurement, const struct options *options) {
    const struct measurement *m = measurement;
    double seconds = (double)(m->stopped_ns - m->started_ns) / 1e9;
    double cpu = m->cpu_stopped - m->cpu_started;
    if (seconds <= 0) seconds = 1e-9;
    printf("{\"mode\": \"%s\", \"seconds\": %.6f, \"requests\": %llu, \"records\": %llu, \"bytes\": %llu, ",
           options->mode, seconds, (unsigned long long)m->requests, (unsigned long long)m->records,
           (unsigned long long)m->bytes);
    printf("\"requests_per_s\": %.1f, \"records_per_s\": %.1f, \"mb_per_s\": %.2f, ", (double)m->requests / seconds,
           (double)m->records / seconds, (double)m->bytes / seconds / 1e6);
    printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, ",
           histogram_quantile_us(&m->latency, 0.5), histogram_quantile_us(&m->latency, 0.99),
           histogram_quantile_us(&m->latency, 0.999), (double)m->latency.largest_ns / 1000.0);
    printf("\"client_cpu_seconds\": %.4f, \"client_cpu_share\": %.4f, ", cpu, cpu / seconds);
    printf("\"requests_total\": %llu, \"records_total\": %llu, \"errors\": {", (unsigned long long)m->requests_total,
           (unsigned long long)m->records_total);
    const char *comma = "";
    for (int i = 0; i < ERROR_CODES; i++) {
        if (m->errors[i] == 0) continue;
        printf("%s\"%d\": %llu", comma, i - 1, (unsigned long long)m->errors[i]);
        comma = ", ";
    }
    printf("}}\n");
    return m->error_count == 0 ? 0 : 3;
}

void wait_for_news(struct pollfd *polled, size_t count, const struct options *options, int64_t wake_ns) {
    int ready = 0;
    int64_t until = options->busy_poll_us > 0 ? now_ns() + options->busy_poll_us * INT64_C(1000) : 0;
    while (ready == 0 && until > 0 && now_ns() < until) ready = poll(polled, (nfds_t)count, 0);
    if (ready == 0) {
        int64_t wait_ns = 100 * INT64_C(1000000);
        if (wake_ns > 0 && wake_ns - now_ns() < wait_ns) wait_ns = wake_ns - now_ns();
        struct timespec timeout = {.tv_nsec = wait_ns > 0 ? wait_ns : 0};
        ready = ppoll(polled, (nfds_t)count, &timeout, NULL);
    }
    if (ready < 0 && errno != EINTR) die("poll: %s", strerror(errno));
}

int open_connection(const struct options *options) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options->port)};
    if (inet_pton(AF_INET, options->host, &address.sin_addr) != 1) die("'%s' is not an IPv4 address", options->host);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) die("no socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to %s:%d: %s", options->host, options->port, strerror(errno));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) die("fcntl: %s", strerror(errno));
    return fd;
}
