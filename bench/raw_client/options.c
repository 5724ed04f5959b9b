#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "wire.h"

enum { CONNECTIONS_MAX = 20000 };

static const char USAGE[] =
    "usage: raw_client produce|fetch|transactions --host IPV4 --port N --topic NAME [--partitions N] [--connections N]\n"
    "         [--warmup-s S] [--seconds S] [--busy-poll-us N] [--ca PEM (TLS)]\n"
    "         produce: [--batch-records N] [--value-bytes N] [--in-flight N] [--acks -1|1] [--requests N]\n"
    "                  [--requests-per-s N] [--leaders PORT,PORT,... (of each partition)]\n"
    "         fetch:   [--partition-bytes-max N] [--passes N] [--check-crc 0|1] [--isolation 0|1]\n"
    "         transactions: [--batch-records N] [--value-bytes N] [--requests N], a producer for each connection";

static double number(const char *name, const char *text, double least, double most) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= least && value <= most))
        die("%s must be a number from %g to %g, not '%s'", name, least, most, text);
    return value;
}

static int set_option(struct options *options, const char *name, const char *text) {
    if (strcmp(name, "--host") == 0) options->host = text;
    else if (strcmp(name, "--topic") == 0) options->topic = text;
    else if (strcmp(name, "--ca") == 0) options->ca = text;
    else if (strcmp(name, "--port") == 0) options->port = (int)number(name, text, 1, 65535);
    else if (strcmp(name, "--partitions") == 0) options->partitions = (int)number(name, text, 1, 100000);
    else if (strcmp(name, "--connections") == 0) options->connections = (int)number(name, text, 1, CONNECTIONS_MAX);
    else if (strcmp(name, "--leaders") == 0) options->leaders = text;
    else if (strcmp(name, "--warmup-s") == 0) options->warmup_s = number(name, text, 0, 3600);
    else if (strcmp(name, "--seconds") == 0) options->seconds = number(name, text, 0.01, 3600);
    else if (strcmp(name, "--busy-poll-us") == 0) options->busy_poll_us = (int)number(name, text, 0, 1000000);
    else if (strcmp(name, "--batch-records") == 0) options->batch_records = (int)number(name, text, 1, 100000);
    else if (strcmp(name, "--value-bytes") == 0) options->value_bytes = (int)number(name, text, 0, 1 << 20);
    else if (strcmp(name, "--in-flight") == 0) options->in_flight = (int)number(name, text, 1, 10000);
    else if (strcmp(name, "--acks") == 0) options->acks = (int)number(name, text, -1, 1);
    else if (strcmp(name, "--requests") == 0) options->requests = (int64_t)number(name, text, 0, 1e12);
    else if (strcmp(name, "--requests-per-s") == 0) options->requests_per_s = number(name, text, 0, 1e7);
    else if (strcmp(name, "--partition-bytes-max") == 0)
        options->partition_bytes_max = (int)number(name, text, 1, 1 << 28);
    else if (strcmp(name, "--passes") == 0) options->passes = (int64_t)number(name, text, 0, 1e9);
    else if (strcmp(name, "--check-crc") == 0) options->check_crc = (int)number(name, text, 0, 1);
    else if (strcmp(name, "--isolation") == 0) options->isolation = (int)number(name, text, 0, 1);
    else return 0;
    return 1;
}

struct options parse_options(int count, char **words) {
    struct options options = {
        .partitions = 1,
        .connections = 1,
        .warmup_s = 0.5,
        .seconds = 5,
        .batch_records = 1,
        .value_bytes = 200,
        .in_flight = 1,
        .acks = -1,
        .partition_bytes_max = 1 << 20,
    };
    if (count < 2) die("%s", USAGE);
    options.mode = words[1];
    for (int i = 2; i < count; i += 2) {
        if (i + 1 == count) die("%s needs a value\n%s", words[i], USAGE);
        if (!set_option(&options, words[i], words[i + 1])) die("unknown option %s\n%s", words[i], USAGE);
    }
    if (options.host == NULL || options.port == 0 || options.topic == NULL)
        die("--host, --port and --topic are needed\n%s", USAGE);
    if (strlen(options.topic) > 249) die("the topic's name is longer than 249 bytes");
    if (options.acks == 0) die("--acks 0 has no answers, so nothing can be measured; use -1 or 1");
    return options;
}
