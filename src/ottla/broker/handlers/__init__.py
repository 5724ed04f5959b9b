"""One module for each API: versions, behaviour and gaps in its head."""
