"""Work on a timer or in a thread of its own: flushes, housekeeping, compaction, room on the disk."""
