"""Work on a timer or in a separate thread: flushes, housekeeping, compaction, room on the disk."""
