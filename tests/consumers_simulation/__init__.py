"""Groups without a master in virtual time: the product's `Consumer` over a simulated tree, under faults."""
