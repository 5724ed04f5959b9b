"""What consumer groups cost: rebalances, commits, and the loading of many groups; one lean client for both brokers."""
