"""Apache Kafka as a peer: what tests and the benchmark compare Ottla with, and the tools that it ships."""
