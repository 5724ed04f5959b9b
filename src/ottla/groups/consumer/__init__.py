"""Consumer groups: members send one kind of heartbeat, the broker assigns partitions (KIP-848)."""
