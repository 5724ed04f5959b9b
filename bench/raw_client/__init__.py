"""A Kafka client in C that costs next to nothing, so that a benchmark measures the broker."""
