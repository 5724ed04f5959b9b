"""Administration: topics, settings, log directories, reassignments, lag."""
