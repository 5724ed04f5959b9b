"""Where a client connects, and with which security settings, when its caller does not say it."""
