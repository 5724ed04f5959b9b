"""The shell of transactions: shards of `__transaction_state`, the senders of markers, verification of produces."""
