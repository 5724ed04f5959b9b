"""The requests: each function is one conversation with a fresh broker that uses its own topics and groups."""
