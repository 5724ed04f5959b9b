"""What is wrong with a copy of a topic that must have each record once.  Pure.

Records have the number of their source partition as key, so the records of one key are in one partition of the target,
and a copy without a fault has them in the source's order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

SHOWN_MAX: Final = 5


class Row(NamedTuple):
    key: bytes
    value: bytes


def problems_of(source: Sequence[Row], target: Sequence[Row], acknowledged: Mapping[bytes, int]) -> list[str]:
    """`source` and `target` in the order of their partitions' logs; `acknowledged`: how often each value was."""
    expected, found = Counter(source), Counter(target)
    problems = [
        *_counted("lost", expected - found),
        *_counted("written more than once, or never read", found - expected),
        *_counted("acknowledged, and not in the source", Counter(acknowledged) - Counter(row.value for row in source)),
    ]
    return problems or [
        f"the rows of key {key.decode()} are in another order"
        for key in sorted({row.key for row in source})
        if [row for row in source if row.key == key] != [row for row in target if row.key == key]
    ]


def _counted(what: str, rows: Counter[Row] | Counter[bytes]) -> list[str]:
    shown = ", ".join(map(str, list(rows)[:SHOWN_MAX]))
    return [f"{rows.total()} {what}, such as {shown}"] if rows else []
