"""The listener for administrators: metrics and health checks."""
