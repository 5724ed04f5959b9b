"""How many operations fit into one request to the tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ottla.coordination.tree import CreateNode, Operation, SetNode

# ZooKeeper's limit is 1 MiB for the whole request.  A part is left for `/changes`, which every request may set.
BATCH_BYTES_MAX: Final = 512 * 1024
# The header of an operation, the lengths of its fields, and the access control list of a node with a digest.
OPERATION_OVERHEAD_BYTES: Final = 160


def request_bytes(operations: Iterable[Operation]) -> int:
    """An estimate from above."""
    return sum(map(_operation_bytes, operations))


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


def _operation_bytes(operation: Operation) -> int:
    data_bytes = len(operation.data) if isinstance(operation, CreateNode | SetNode) else 0
    return OPERATION_OVERHEAD_BYTES + len(operation.path.encode()) + data_bytes
