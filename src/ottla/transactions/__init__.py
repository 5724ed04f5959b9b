"""Transactional ids of one partition of `__transaction_state`: who owns each, its transaction, how that ends."""
