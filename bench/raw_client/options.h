#ifndef RAW_CLIENT_OPTIONS_H
#define RAW_CLIENT_OPTIONS_H

#include <stdint.h>

struct options {
    const char *mode;
    const char *host;
    int port;
    const char *topic;
    const char *ca; /* of the broker's certificate, in PEM; NULL = without TLS */
    int partitions;
    int connections;
    const char *leaders; /* the port of each partition's leader, with commas: connections write to what their broker leads */
    double warmup_s;
    double seconds;
    int busy_poll_us; /* look for answers so long before going to sleep; 0 = sleep at once, as real clients do */
    /* produce */
    int batch_records;
    int value_bytes;
    int in_flight;
    int acks;
    int64_t requests; /* send exactly so many and stop; 0 = go by time */
    double requests_per_s; /* begin so many, evenly; 0 = as fast as answers come */
    /* fetch */
    int partition_bytes_max;
    int64_t passes; /* read the partition so often and stop; 0 = go by time */
    int check_crc;
    int isolation; /* 1 = below the last stable offset only */
};

/* Dies with a usage line when an option is unknown, lacks its value or is out of bounds. */
struct options parse_options(int count, char **words);

#endif
