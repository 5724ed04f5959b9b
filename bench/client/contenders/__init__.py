"""The clients that are compared: each module has its way to produce, to consume and to wait for single messages."""
