/* The measured window: warm-up before it, draining after it, both uncounted. */
#ifndef RAW_CLIENT_MEASUREMENT_H
#define RAW_CLIENT_MEASUREMENT_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"
#include "options.h"

enum phase { WARMING_UP, MEASURING, DRAINING };

enum { ERROR_CODES = 200, SILENCE_S_MAX = 60 };

struct measurement {
    enum phase phase;
    int64_t phase_ends_ns;
    int64_t started_ns;
    int64_t stopped_ns;
    int64_t last_answer_ns;
    double cpu_started;
    double cpu_stopped;
    uint64_t requests; /* answered inside the window */
    uint64_t records;
    uint64_t bytes;
    uint64_t requests_total; /* answered at any time */
    uint64_t records_total;
    uint64_t error_count;
    uint64_t errors[ERROR_CODES]; /* index = error code + 1 */
    struct histogram latency;
};

/* by_count = the window is open from the first request to measurement_stop. */
void measurement_start(struct measurement *measurement, const struct options *options, int by_count);

/* Moves from phase to phase by the clock; dies when the broker has been silent for too long. */
void measurement_tick(struct measurement *measurement, const struct options *options, int64_t now);

void measurement_stop(struct measurement *measurement, int64_t now);

void measurement_answer(struct measurement *measurement, int64_t now, int64_t latency_ns, int64_t records,
                        int64_t bytes);

void measurement_error(struct measurement *measurement, int16_t code);

/* Prints the result as one JSON object; gives the exit status: 0, or 3 if there was any error. */
int measurement_print(const struct measurement *measurement, const struct options *options);

/* Waits until a socket has news, 100 ms at most, and not beyond wake_ns (of now_ns; 0 = no such time): first by looking
 * again and again, if the options say so. */
void wait_for_news(struct pollfd *polled, size_t count, const struct options *options, int64_t wake_ns);

/* A connected, non-blocking socket without Nagle's delay. */
int open_connection(const struct options *options);

#endif
