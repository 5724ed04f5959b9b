"""The tree in a ZooKeeper that several brokers share.

`ZooKeeperBackend(connect)`, then `connect()` for one session, or `ZooKeeperKeeper.open(backend)` of
`ottla.coordination.zookeeper.backend` for a tree over successive sessions.  kazoo does the connecting; its
thread meets the event loop in `client` and nowhere else.
"""
