"""The batches of a mirror and its progress, in transactions at the target.

One transaction follows the other: each has the batches that were sent since the last commit, of all partitions, and the
progress that they make.  So the target shows to readers of committed records what the stored progress says, and a
mirror that was replaced can write nothing more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from ottla.client.producing.batch_transactions import BatchTransactions
from ottla.client.producing.errors import TransactionAbortable
from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.mirror.journal import Entry
from ottla.mirror.progress_topic import PROGRESS_PARTITION, LeaseLapsed, journal_batches
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.records.header import ATTRIBUTES, ATTRIBUTES_AT, TRANSACTIONAL_BIT, read_header

TRANSACTIONAL_ID_PREFIX: Final = "ottla-mirror-"
# A commit follows within `progress_interval_ms`, unless the target stalls.
TIMEOUT_MS: Final = 60_000
# Twice in a transaction, for the last batch and for the progress, and the coordinator has not aborted it: so a batch
# that is late aborts the transaction with its own reason.
DELIVERY_TIMEOUT_MS: Final = 20_000


class RolledBack(Exception):
    """The transaction was aborted.  `refused`: the batch that could not be stored, or could not be sent since its
    partition was not added to the transaction; None: for another reason."""

    def __init__(self, reason: OttlaError, refused: BatchResult | None) -> None:
        super().__init__(str(reason))
        self.refused: Final = refused


class CopyTransactions:
    """Of one mirror, in one term of its fence.

    Calls raise RolledBack where the transaction could not commit and was aborted, and LeaseLapsed where another mirror
    has taken over, or only the next take-over can decide whether it has committed.
    """

    def __init__(
        self, target: Cluster, source_cluster_id: str, buffer_bytes_max: int, may_write: Callable[[], bool]
    ) -> None:
        self._target = target
        self._transactional_id = TRANSACTIONAL_ID_PREFIX + source_cluster_id
        self._options = ProducerOptions(
            buffer_bytes_max=buffer_bytes_max,
            allow_auto_topic_creation=False,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        )
        self._may_write = may_write
        # Of the open transaction.
        self._written: set[TopicPartition] = set()
        self._is_open = False
        self._has_pending_markers = False
        self._transactions = self._taken_over()

    def close(self) -> None:
        """The next take-over, which may be another mirror's, aborts what is open."""
        self._transactions.close()

    @property
    def pending_count(self) -> int:
        return self._transactions.pending_count

    @property
    def is_open(self) -> bool:
        return self._is_open

    def send(self, partition: TopicPartition, batch: bytearray, tag: object) -> None:
        """A copied batch, which gets its place in the transaction.  May block."""
        header = read_header(batch)
        ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, header.attributes | TRANSACTIONAL_BIT)
        unsent = BatchResult(partition, tag, header.records_count, len(batch), DeliveryStatus.REFUSED)
        with self._errors(unsent):
            self._begin()
            self._transactions.send(partition, batch, tag)
        self._written.add(partition)

    def poll(self) -> list[BatchResult]:
        """The batches that were stored since the last call, all acknowledged."""
        if not self._is_open:
            return []
        with self._errors():
            return self._transactions.poll()

    def flush(self) -> list[BatchResult]:
        """Wait until everything that was sent is stored."""
        if not self._is_open:
            return []
        with self._errors():
            self._transactions.flush()
            return self._transactions.poll()

    def commit(self, entries: Iterable[Entry]) -> set[TopicPartition]:
        """With these entries of the journal; the partitions with copied batches, which have one marker more each."""
        with self._errors():
            self._begin()
            for batch in journal_batches(entries, self._target.clock.now_ms(), is_transactional=True):
                self._transactions.send(PROGRESS_PARTITION, batch)
            self._transactions.commit()
        self._is_open, self._has_pending_markers = False, True
        written, self._written = self._written, set()
        return written

    def wait_markers(self) -> None:
        """When this returns, the markers of all transactions so far are stored; none may be open.

        A partition without a leader, to which the last transaction wrote, holds it up.
        """
        assert not self._is_open, "the markers of an open transaction do not come"
        if self._has_pending_markers:
            with self._errors():
                self._renew()

    def _begin(self) -> None:
        if not self._is_open:
            self._transactions.begin()
            self._is_open = True

    def _renew(self) -> None:
        # The id is given again when the last transaction has all its markers.
        taken_over = self._taken_over()
        self._transactions.close()
        self._transactions = taken_over

    def _taken_over(self) -> BatchTransactions:
        if not self._may_write():
            raise LeaseLapsed("nothing is sent: the mirror's lease has lapsed")
        transactions = BatchTransactions(self._target, self._transactional_id, TIMEOUT_MS, self._options)
        try:
            transactions.take_over()
        except BaseException:
            transactions.close()
            raise
        self._is_open = self._has_pending_markers = False
        self._written.clear()
        return transactions

    @contextmanager
    def _errors(self, unsent: BatchResult | None = None) -> Iterator[None]:
        """`unsent`: the batch of the call, the culprit where no batch before it is."""
        try:
            yield
        except TransactionAbortable as error:
            refused = self._transactions.refused
            if refused is None and unsent is not None:
                refused = dataclasses.replace(unsent, error=error.reason)
            try:
                self._transactions.abort()
                self._renew()
            except ClientError as problem:
                raise LeaseLapsed(str(problem)) from error
            raise RolledBack(error.reason, refused) from error
        except ClientError as error:
            # Another mirror has the id, or no answer came: the next session reads what is committed.
            raise LeaseLapsed(str(error)) from error


def has_transactions(cluster: Cluster) -> bool:
    """Raises ClientError."""
    connection = cluster.connect_any(cluster.retrying.deadline())
    return connection.supports(ApiKey.ADD_PARTITIONS_TO_TXN) and connection.supports(ApiKey.END_TXN)
