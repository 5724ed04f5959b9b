"""The shared tree, and what is written once over it: registries, topics, configs, elections.

`tree` is the interface, `embedded` a home of it.  Everything else here reads and writes through the interface alone.
"""
