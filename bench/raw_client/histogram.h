/* Latencies with a relative error below 1/64, in constant memory (the shape of an HDR histogram). */
#ifndef RAW_CLIENT_HISTOGRAM_H
#define RAW_CLIENT_HISTOGRAM_H

#include <stdint.h>

enum { SUB_BUCKET_BITS = 6, BUCKET_COUNT = (64 - SUB_BUCKET_BITS + 1) << SUB_BUCKET_BITS };

struct histogram {
    uint64_t counts[BUCKET_COUNT];
    uint64_t total;
    int64_t largest_ns;
};

void histogram_add(struct histogram *histogram, int64_t latency_ns);

/* The latency in microseconds below which this share (0..1) of all values lies; 0 for no values. */
double histogram_quantile_us(const struct histogram *histogram, double share);

#endif
