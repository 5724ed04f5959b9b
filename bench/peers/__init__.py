"""The brokers that the benchmark compares; each is a context manager around one process."""
