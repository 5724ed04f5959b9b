"""What coordinators share: the shards of an internal topic, each served in one leader epoch of its partition."""
