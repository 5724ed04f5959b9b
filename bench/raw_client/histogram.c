#include "histogram.h"

/* Values below 2^SUB_BUCKET_BITS have a bucket each; above, each power of two is cut into 2^SUB_BUCKET_BITS. */
static int bucket_of(uint64_t value) {
    if (value < 1u << SUB_BUCKET_BITS) return (int)value;
    int shift = 63 - __builtin_clzll(value) - SUB_BUCKET_BITS;
    return (int)(((uint64_t)(shift + 1) << SUB_BUCKET_BITS) + (value >> shift) - (1u << SUB_BUCKET_BITS));
}

static double middle_of(int bucket) {
    int group = bucket >> SUB_BUCKET_BITS;
    double sub = (double)(bucket & ((1 << SUB_BUCKET_BITS) - 1));
    if (group == 0) return sub;
    double width = (double)((uint64_t)1 << (group - 1));
    return ((1 << SUB_BUCKET_BITS) + sub + 0.5) * width;
}

void histogram_add(struct histogram *histogram, int64_t latency_ns) {
    if (latency_ns < 0) latency_ns = 0;
    histogram->counts[bucket_of((uint64_t)latency_ns)]++;
    histogram->total++;
    if (latency_ns > histogram->largest_ns) histogram->largest_ns = latency_ns;
}

double histogram_quantile_us(const struct histogram *histogram, double share) {
    if (histogram->total == 0) return 0;
    double wanted = share * (double)histogram->total;
    uint64_t seen = 0;
    for (int bucket = 0; bucket < BUCKET_COUNT; bucket++) {
        seen += histogram->counts[bucket];
        if (seen > 0 && (double)seen >= wanted) return middle_of(bucket) / 1000.0;
    }
    return (double)histogram->largest_ns / 1000.0;
}
