#ifndef RAW_CLIENT_MODES_H
#define RAW_CLIENT_MODES_H

#include "options.h"

/* Each runs to its end, prints one JSON object to stdout and gives the process's exit status. */
int run_produce(const struct options *options);
int run_fetch(const struct options *options);
int run_transactions(const struct options *options);

#endif
