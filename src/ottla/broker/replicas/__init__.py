"""What a broker of a cluster does for replication: elections, in-sync sets, replica fetchers, moves of replicas."""
