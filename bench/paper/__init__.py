"""The paper's figures 4 and 5 repeated: one producer, one consumer, real client libraries, four systems."""
