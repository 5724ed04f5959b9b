"""The shared tree, and the registries over it: brokers, topics, configs, elections.

`tree` is the interface, `embedded` an implementation.  Everything else here uses the interface alone.
"""
