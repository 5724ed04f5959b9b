"""The tree that processes of one machine share: one holds it, and serves it to the others over a Unix socket.

`TreeServer` is the holder's side, over an embedded tree; `LocalBackend(path)` gives sessions to the others.
"""
