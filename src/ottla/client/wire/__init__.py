"""Addresses, connections, cluster metadata, retries and time-outs: what every client of a cluster shares."""
