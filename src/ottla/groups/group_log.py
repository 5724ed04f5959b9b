"""The log of a shard, a partition of `__consumer_offsets` as far as groups need it: its records, and the decisions
that append them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ottla.groups.commands import TransactionalProducer, WriteMarker
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError


class GroupRecordError(OttlaError):
    """A record of `__consumer_offsets` does not match its version: damaged, or written by another program."""

    error_code = ErrorCode.CORRUPT_MESSAGE
    hint = "read the record with Kafka's DumpLogSegments --offsets-decoder; the group can be deleted and recreated"


class GroupRecord(NamedTuple):
    """A record in Kafka's own format of `__consumer_offsets`; no value is a tombstone."""

    key: bytes
    value: bytes | None


class GroupLog(Protocol):
    """Appends records.  Synchronous: `GroupShard.on_stable` reports durability later."""

    @property
    def stable_end(self) -> int:
        """The offset below which records survive a crash; exclusive, never goes back."""
        ...

    def append(self, records: Sequence[GroupRecord], now_ms: int, producer: TransactionalProducer | None = None) -> int:
        """Append `records` (at least one) as one batch, whole or not at all; in the transaction of `producer`, if any.

        `now_ms` is wall time.  Returns the exclusive end of the batch: replies wait until `stable_end` reaches it.
        Raises `OttlaError` when nothing was appended; its `error_code` says why.
        """
        ...

    def append_marker(self, command: WriteMarker, now_ms: int) -> int | None:
        """Append the marker that ends a transaction; its exclusive end, or None where it repeats one of the log.

        Raises `OttlaError` when nothing was appended.
        """
        ...


class Decision(NamedTuple):
    """`records` are appended as one batch and then replayed; after that `reply` is due, once the batch is stable.

    Deciding changed no durable state: when the append fails, `reply` is dropped and an error is sent instead.
    `reply` is None when there is no request (a deadline passed).
    """

    records: Sequence[GroupRecord]
    reply: object
