"""Quotas: which one holds for a client, what it has used, and how long it is throttled; decides, no I/O."""
