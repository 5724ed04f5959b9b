"""What operators see: log events, metrics, and the story of a partition."""
