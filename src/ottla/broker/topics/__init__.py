"""Topics: the partitions that follow from the tree, creation and deletion, and cached Metadata responses."""
