"""The shell of groups: a shard for each partition of `__consumer_offsets`, and calls without tasks."""
