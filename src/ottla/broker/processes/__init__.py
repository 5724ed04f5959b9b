"""Child processes beside the broker: the schema registry and the audit's counts."""
