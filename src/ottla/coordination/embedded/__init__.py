"""The tree inside this process: in memory, journalled in one SQLite file, written on its own thread.

`EmbeddedBackend.open(path)`, then `connect()` for a session that is a `coordination.tree.Tree`.
"""
