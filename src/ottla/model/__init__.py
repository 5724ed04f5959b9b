"""The vocabulary of all layers: identifiers, error codes, settings, limits.  Imports nothing of ours."""
