"""The state of a producer of batches (`client.producing.produce_machine`) in virtual time, under faults of a seed."""
