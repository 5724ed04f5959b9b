"""The vocabulary of all layers: identifiers, error codes, settings, limits.  Imports no other module of Ottla."""
