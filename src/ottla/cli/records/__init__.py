"""`ottla produce` and `ottla consume`."""
