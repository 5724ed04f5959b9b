"""The tree in one process: in memory, journalled in SQLite."""
