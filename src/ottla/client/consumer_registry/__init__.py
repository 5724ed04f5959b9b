"""The registries of groups whose consumers share partitions by themselves: nodes below `/consumers` of the tree."""
