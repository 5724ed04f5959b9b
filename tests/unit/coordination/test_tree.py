from __future__ import annotations

from ottla.coordination.tree import (
    OPERATION_BYTES,
    CheckNode,
    CreateNode,
    DeleteNode,
    Lease,
    Operation,
    SetNode,
    request_bytes,
)


def test_request_bytes_count_paths_and_data_and_add_up() -> None:
    operations: list[Operation] = [CreateNode("/ab", b"123"), SetNode("/ä", b"45"), DeleteNode("/c"), CheckNode("/d")]
    assert request_bytes(operations) == 4 * OPERATION_BYTES + (3 + 3) + (3 + 2) + 2 + 2
    assert request_bytes(operations) == sum(request_bytes([operation]) for operation in operations)
    assert request_bytes([]) == 0


def test_lease_is_extended_by_answers_in_any_order() -> None:
    lease = Lease()
    assert lease.until_ms == 0
    lease.extend(20)
    lease.extend(10)
    assert lease.until_ms == 20


def test_lease_that_ended_is_over() -> None:
    lease = Lease(2**63 - 1)
    lease.end()
    assert lease.until_ms == 0
