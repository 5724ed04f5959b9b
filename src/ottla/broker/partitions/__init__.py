"""The partitions that this broker serves: appends, reads, and requests that wait."""
