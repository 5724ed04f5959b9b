"""What operators see: log events, and the recent transitions of a partition in the event of a failure."""
