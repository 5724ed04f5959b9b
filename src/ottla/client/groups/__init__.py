"""Groups as an administrator sees them: coordinators, listings, members, committed offsets."""
