"""A cluster's replication in virtual time: the product's pure parts over simulated logs, network, tree and clients."""
