"""The tree that processes of one machine share: one holds it, and serves it to the others over a Unix socket.

`TreeServer` is the holder's side, over an embedded tree; `LocalBackend(path)` gives sessions to the others.
"""

from __future__ import annotations

from typing import Final

# Of the holder's process: its socket, in its directory, and its log event when it serves.
SOCKET_FILE: Final = "tree.socket"
READY_EVENT: Final = "tree.ready"
