"""`ottla top`."""
