"""For users' tests and ours: fake clock, in-memory disk, real broker."""
