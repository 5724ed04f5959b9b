"""Fetches of partitions: requests, offsets, messages, aborted batches."""
