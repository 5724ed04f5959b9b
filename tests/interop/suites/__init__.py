"""The suites of Kafka's Python clients, run from a tree that the caller has, on a broker of either kind."""
