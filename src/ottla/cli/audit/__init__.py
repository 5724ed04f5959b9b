"""`ottla audit`."""
