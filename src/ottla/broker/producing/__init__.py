"""Produce: how a batch is checked, opened where its topic demands it, appended, and acknowledged."""
