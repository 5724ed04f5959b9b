"""Programs of other projects that process exactly once: they are killed, and each result is there once."""
