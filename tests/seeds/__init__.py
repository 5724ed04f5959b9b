"""Shared by the simulations with seeds: the search of seeds, planted bugs, the command."""
