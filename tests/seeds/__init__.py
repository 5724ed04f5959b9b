"""What simulations share whose runs a seed decides: the search of seeds, planted bugs, the command."""
