"""A schema registry: subjects, versions and compatibility over HTTP, stored in a compacted topic."""
