"""An hour of mixed load on several processes: whether memory, descriptors or latency drift."""
