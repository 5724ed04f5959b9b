"""The log: segments, indexes, recovery, flush, retention.  Knows nothing of requests."""
