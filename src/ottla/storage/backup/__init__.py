"""Backups of a data directory, also of a running broker's: copies of its logs and its tree, and what is in them."""
