"""The partitions that this broker serves: appends, reads, parked produces, and the rules for produced batches."""
