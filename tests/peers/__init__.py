"""Apache Kafka as a peer: the reference for tests and the benchmark, and its tools."""
