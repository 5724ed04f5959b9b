"""Clients of other languages: programs of ours over their libraries, each with the same scenarios."""
