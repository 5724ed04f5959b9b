"""What operators see: log events, and the story of a partition when something went wrong."""
