"""Histories of transactions under faults: `./dev chaos transactions` (README.md)."""
