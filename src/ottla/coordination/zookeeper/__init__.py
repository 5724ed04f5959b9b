"""The tree in a ZooKeeper that several brokers share.

`ZooKeeperHome(connect)`, then `connect()` for one session, or `SessionKeeper.open(home)` of
`ottla.coordination.zookeeper.session_keeper` for a tree over successive sessions.  kazoo does the connecting; its
thread meets the event loop in `client` and nowhere else.
"""
