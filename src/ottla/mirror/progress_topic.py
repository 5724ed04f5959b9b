"""The topic where a mirror keeps its journal: made on the target, read whole at each start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final

from ottla.client.admin.admin import Admin, NewTopic
from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.topic_log import TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, ClientError
from ottla.mirror.journal import Entry, MirrorJournal
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import KIB
from ottla.model.own_names import MIRROR_PROGRESS_TOPIC
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec

PROGRESS_PARTITION: Final = TopicPartition(MIRROR_PROGRESS_TOPIC, 0)
# Entries come in the order in which they may be cut, in as many batches as that takes.
_BATCH_BYTES: Final = 256 * KIB
_PRODUCER: Final = ProducerOptions(allow_auto_topic_creation=False, halts_on_refusal=True)
_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": "16777216"}


class JournalNotWritten(OttlaError):
    hint = "the target refuses the mirror's own records; nothing is lost: the mirror continues from its stored progress"


class LeaseLapsed(JournalNotWritten):
    hint = "another mirror may be at work; nothing is lost: this one starts again from the stored progress"


def make_progress_topic(cluster: Cluster, replication_factor: int) -> None:
    """Unless it is there.  One partition: what is written in order is read in order.  Raises BrokerRefused."""
    if any(not topic.error_code for topic in cluster.refresh([MIRROR_PROGRESS_TOPIC])):
        return
    new = NewTopic(MIRROR_PROGRESS_TOPIC, 1, replication_factor, _CONFIGS)
    outcome = Admin(cluster).create_topics([new])[MIRROR_PROGRESS_TOPIC]
    if isinstance(outcome, BrokerRefused) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise outcome
    cluster.topic(MIRROR_PROGRESS_TOPIC)


def read_journal(cluster: Cluster) -> MirrorJournal:
    """What is there now; an empty one where there is no such topic.  Raises ClientError, UnreadableJournal."""
    reader = JournalReader(cluster)
    reader.read()
    return reader.journal


class JournalReader:
    """`journal` has what was there at the last `read`."""

    def __init__(self, cluster: Cluster) -> None:
        self.journal = MirrorJournal()
        # A mirror may write its progress in transactions.
        self._log = TopicLog(cluster, MIRROR_PROGRESS_TOPIC, isolation=IsolationLevel.READ_COMMITTED)

    def read(self) -> None:
        """Apply what was written since the last time; nothing where there is no such topic.  Raises ClientError,
        UnreadableJournal."""
        if self._log.exists():
            for message in self._log.read():
                self.journal.apply(message.key, message.value)


def journal_batches(entries: Iterable[Entry], now_ms: int, *, is_transactional: bool = False) -> Iterator[bytearray]:
    """The entries in as many batches as that takes, in their order."""
    builder = BatchBuilder()
    for key, value in entries:
        if builder.records_count and builder.size_bytes + len(key) + len(value or b"") > _BATCH_BYTES:
            yield _built(builder, is_transactional=is_transactional)
            builder = BatchBuilder()
        builder.append(now_ms, key, value)
    if builder.records_count:
        yield _built(builder, is_transactional=is_transactional)


def _built(builder: BatchBuilder, *, is_transactional: bool) -> bytearray:
    # Compressed, as it is numbers in text; every broker and client has gzip.
    return builder.build(codec=Codec.GZIP, is_transactional=is_transactional)


class JournalWriter:
    """Writes entries with a producer of its own, one write at a time; `journal` has them once they are stored."""

    def __init__(self, cluster: Cluster, journal: MirrorJournal) -> None:
        self.journal = journal
        self._cluster = cluster
        self._producer = RawProducer(cluster, _PRODUCER)
        self._written: list[Entry] = []
        self._is_unsure = False

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._producer.close()

    @property
    def is_busy(self) -> bool:
        return self._producer.pending_count > 0

    def make_sure(self) -> None:
        """Read again what a write that failed has left there.  Raises JournalNotWritten."""
        if self._is_unsure:
            try:
                self.journal = read_journal(self._cluster)
            except ClientError as error:
                raise JournalNotWritten(f"the mirror's progress cannot be read: {error}") from error
            self._is_unsure = False

    def send(self, entries: Iterable[Entry]) -> None:
        """In this order: of a write that fails a first part is stored.  `poll` or `finish` says what became of it."""
        assert not self.is_busy, "one write at a time"
        self._written += entries
        for batch in journal_batches(self._written, self._cluster.clock.now_ms()):
            self._producer.send(PROGRESS_PARTITION, batch)

    def on_committed(self, entries: Iterable[Entry]) -> None:
        """A transaction has stored them."""
        for key, value in entries:
            self.journal.apply(key, value)

    def poll(self) -> None:
        """What has become of the write so far.  Raises JournalNotWritten: then all of it may be stored or not."""
        self._take(self._producer.poll(0))

    def finish(self) -> None:
        """Wait until the write is stored.  Raises JournalNotWritten."""
        self._take(self._producer.flush())

    def _take(self, results: Iterable[BatchResult]) -> None:
        for result in results:
            if result.status is not DeliveryStatus.ACKNOWLEDGED:
                self._producer.close()
                self._producer = RawProducer(self._cluster, _PRODUCER)
                self._written.clear()
                self._is_unsure = True
                raise JournalNotWritten(f"the mirror's progress was not written: {result.error}") from result.error
        if not self.is_busy:
            for key, value in self._written:
                self.journal.apply(key, value)
            self._written.clear()
