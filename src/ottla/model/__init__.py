"""The words that every layer shares: identifiers, error codes, settings, limits.  Imports nothing of ours."""
