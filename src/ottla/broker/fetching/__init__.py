"""Fetch: what a request reads, its session, and how it waits for records."""
