"""The network side of the broker: connections, their buffers and budgets, and how their requests are metered."""
