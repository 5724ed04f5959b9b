from __future__ import annotations


class PeerUnavailable(RuntimeError):
    """A peer is unavailable on this machine; the text is the reason for the user."""
