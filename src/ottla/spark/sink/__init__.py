"""`df.write.format("ottla")` and `writeStream`: rows to partitions, batches to leaders."""
