"""What monitors the broker from outside: the metrics of each part, and health checks, over HTTP."""
