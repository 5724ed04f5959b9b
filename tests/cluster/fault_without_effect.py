"""What makes a run say nothing."""

from __future__ import annotations


class FaultWithoutEffect(Exception):
    """The fault did not do what it says."""
