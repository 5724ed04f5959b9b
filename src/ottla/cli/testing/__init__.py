"""`ottla testing`."""
