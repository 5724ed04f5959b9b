"""What systemd is told of a service of `Type=notify`; nothing where no service manager asks."""

from __future__ import annotations

import os
import socket
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def notify(state: str) -> None:
    """One datagram to $NOTIFY_SOCKET, as sd_notify(3).  That nobody takes it is no reason to end."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    path = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as peer:
            peer.setblocking(False)
            peer.sendto(state.encode(), path)
    except OSError:
        pass
