"""The shell of groups: their partitions of `__consumer_offsets`, loading, the timer, and calls without tasks."""
