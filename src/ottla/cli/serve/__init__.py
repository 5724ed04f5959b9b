"""`ottla serve` and `ottla systemd-unit`."""
