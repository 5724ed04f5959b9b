"""The benchmark: Ottla beside a warm Apache Kafka, in the same run, with the same raw client."""
