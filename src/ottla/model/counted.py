"""A count with its noun: `1 partition`, `3 partitions`; and the first of many names with the count of the others."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str, plural: str | None = None, *, separator: str = "") -> str:
    """`plural` where it is not the noun with an `s`; `separator` between thousands: `,` or `_`.

    >>> counted(1, "batch", "batches"), counted(0, "batch", "batches"), counted(4_000, "row", separator=",")
    ('1 batch', '0 batches', '4,000 rows')
    """
    return f"{count:{separator}} {noun if count == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], shown_max: int) -> str:
    """
    >>> listed(["a", "b", "c"], 2), listed(["a", "b"], 2)
    ('a, b and 1 more', 'a, b')
    """
    more = f" and {len(names) - shown_max} more" if len(names) > shown_max else ""
    return ", ".join(names[:shown_max]) + more
