"""The suites of Kafka's Python clients, run from the caller's checkout, on a broker of either kind."""
