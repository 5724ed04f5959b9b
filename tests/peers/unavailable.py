from __future__ import annotations


class PeerUnavailable(RuntimeError):
    """A peer cannot be had on this machine; the text is a reason to show to people."""
