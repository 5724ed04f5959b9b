/* A Kafka client that costs as little as possible: it measures the broker, not itself. */
#include <string.h>

#include "modes.h"
#include "wire.h"

int main(int count, char **words) {
    struct options options = parse_options(count, words);
    if (strcmp(options.mode, "produce") == 0) return run_produce(&options);
    if (strcmp(options.mode, "fetch") == 0) return run_fetch(&options);
    if (strcmp(options.mode, "transactions") == 0) return run_transactions(&options);
    die("unknown mode '%s'; it is produce, fetch or transactions", options.mode);
}
