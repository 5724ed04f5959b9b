"""Algorithm 1 of the 2011 paper: the consumers of a group share partitions without a coordinator, over a tree.

Decides, never reads or writes: a `Consumer` takes what happened and gives effects.  docs/consumers.md has the rules.
"""
