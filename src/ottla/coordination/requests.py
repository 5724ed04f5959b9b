"""Operations that are too many for one request to the tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ottla.coordination.tree import REQUEST_BYTES_MAX, Operation, request_bytes

# The rest is for `/changes`, and for what a last request adds to a batch.
BATCH_BYTES_MAX: Final = REQUEST_BYTES_MAX // 2


def batches(groups: Iterable[Sequence[Operation]], *, groups_max: int | None = None) -> Iterator[list[Operation]]:
    """The operations of all groups in lists that each fit into a request; a group is never divided."""
    batch: list[Operation] = []
    size, count = 0, 0
    for group in groups:
        added = request_bytes(group)
        if batch and (size + added > BATCH_BYTES_MAX or count == groups_max):
            yield batch
            batch, size, count = [], 0, 0
        batch += group
        size += added
        count += 1
    if batch:
        yield batch
