"""Clients of other languages: test programs over their libraries, each with the same scenarios."""
