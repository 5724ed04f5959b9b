"""The error of a fault that makes a run void."""

from __future__ import annotations


class FaultWithoutEffect(Exception):
    """The fault had no effect."""
