"""Authorization: which rights each API needs, and what becomes of the parts of a request that lack them."""
