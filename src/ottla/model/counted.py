"""A count with its noun: `1 partition`, `3 partitions`."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`plural` where it is not the noun with an `s`.

    >>> counted(1, "batch", "batches"), counted(0, "batch", "batches")
    ('1 batch', '0 batches')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
