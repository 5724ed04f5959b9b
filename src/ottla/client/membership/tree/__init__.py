"""A consumer's place in a group without a master: Algorithm 1 of the 2011 paper, on a cluster's ZooKeeper."""
