"""The effects that a `Consumer` returns.  The answer of a request goes to the method that its description names."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.share import StreamId
from ottla.model.identifiers import TopicPartition


class Register(NamedTuple):
    """Create the consumer's node, by the present session.  `on_registered`: applied also when it is there already."""

    request_id: int


class ReadGroup(NamedTuple):
    """Read consumers and partitions, and watch them: `on_view`, `on_read_failed`; watches call `on_change`."""

    request_id: int
    # Whether the read must see everything that was written before.
    is_synced: bool


class ReadPartitions(NamedTuple):
    """Read both nodes of each partition after a sync: `on_nodes`, `on_read_failed`."""

    request_id: int
    partitions: tuple[TopicPartition, ...]


class WriteKind(Enum):
    CLAIM = "claim"
    """Create the owner node with `stream`, and write the offset node."""

    COMMIT = "commit"
    """Write the offset node."""

    RELEASE = "release"
    """Delete the owner node, and write the offset node."""


class Write(NamedTuple):
    """One `multi`: the offset node gets offset and claim if it has the version (`NO_NODE`: if it can be created).

    A claim or a release is written by the session that it was made for, or not at all.  `on_written`: stale when
    any part of it was refused.
    """

    write_id: int
    kind: WriteKind
    partition: TopicPartition
    expected_version: int
    offset: int
    claim: ClaimId | None
    stream: StreamId


# Each `Start` is ended by one `Released` or `Lost` of its claim.


class Start(NamedTuple):
    """Deliver the partition to this stream from an offset on (-1: none was committed), while the lease lasts.

    `until_ms` is the lease's end as it is known now; `Consumer.hand_out_until_ms` moves it.
    """

    partition: TopicPartition
    stream: StreamId
    offset: int
    claim: ClaimId
    until_ms: int


class Revoke(NamedTuple):
    """Stop delivery, then call `on_stopped` with the offset to commit."""

    partition: TopicPartition
    claim: ClaimId


class Lost(NamedTuple):
    """Stop delivery at once: another consumer may own the partition, and deliver again what is not known to be
    committed.

    Also in place of `Released`, when it cannot be known what became of the release.
    """

    partition: TopicPartition
    claim: ClaimId


class Released(NamedTuple):
    """After a `Revoke`: the offset of `on_stopped` is in the tree, and others may claim the partition."""

    partition: TopicPartition
    claim: ClaimId
    offset: int


class Committed(NamedTuple):
    """The offset is in the tree."""

    partition: TopicPartition
    claim: ClaimId
    offset: int


class Settled(NamedTuple):
    """A rebalance has ended: the consumer owns its whole share of the group as it is."""


class Blocked(NamedTuple):
    """A rebalance is blocked; `reason` names the holders.  Attempts continue, slowly."""

    reason: str


class Left(NamedTuple):
    """Everything is released: the session may be closed."""


Effect = (
    Register
    | ReadGroup
    | ReadPartitions
    | Write
    | Start
    | Revoke
    | Released
    | Lost
    | Committed
    | Settled
    | Blocked
    | Left
)
