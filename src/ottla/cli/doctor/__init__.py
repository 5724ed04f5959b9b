"""`ottla doctor`."""
