"""The topic of the ledger: made, written and read through the client core."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offsets import log_ranges
from ottla.client.producing.acks import Delivery
from ottla.client.producing.record_producer import RecordProducer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError, UnknownTopic
from ottla.lost_offsets.entry import LedgerEntry, LostRange, entry_from_json, entry_key, entry_to_json
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.model.own_names import LEDGER_TOPIC
from ottla.observe.events import fields
from ottla.records.record_run import read_runs

log = logging.getLogger(__name__)

# In the order of their writing, so one partition.  What was lost stays known.
PARTITIONS_COUNT: Final = 1
# Or as many as there are brokers: one dead disk must not take the proof of a loss with it.
REPLICAS_COUNT: Final = 3
TOPIC_CONFIGS: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class LedgerNotWritten(ClientError):
    """What was lost could not be written down, so nothing after it may be read."""

    is_retriable = True
    hint = "the read can be repeated; the ledger's topic must be writable"


def write_losses(cluster: Cluster, topic: str, reader: str, losses: Sequence[LostRange]) -> None:
    """Returns when all in-sync replicas have the entries.

    The topic is created unless it is there, with three replicas, or as many as there are brokers.
    Raises ClientError; then any part of them may be stored, and they may be written again.
    """
    Admin(cluster).ensure_topic(topic, PARTITIONS_COUNT, REPLICAS_COUNT, TOPIC_CONFIGS)
    now_ms = cluster.clock.now_ms()
    with RecordProducer(cluster) as producer:
        for lost in losses:
            entry = LedgerEntry(lost, reader, now_ms)
            producer.add(topic, entry_key(lost), entry_to_json(entry), timestamp_ms=now_ms)
        results = producer.flush(cluster.options.call_timeout_ms)
        failed = [each for each in results if each.delivery is not Delivery.ACKNOWLEDGED]
        if failed or producer.pending_count:
            reason = failed[0].error if failed else "no acknowledgement came in time"
            raise LedgerNotWritten(f"{len(losses)} lost ranges were not written to {topic}: {reason}")


def read_ledger(bootstrap: str | Cluster, topic: str = LEDGER_TOPIC) -> list[LedgerEntry]:
    """The entries up to the topic's end as it is now, in the order of their first writing, each once.

    None when there is no such topic: nothing was lost.  Raises ClientError.
    """
    if isinstance(bootstrap, Cluster):
        return _read(bootstrap, topic)
    with Cluster(bootstrap) as cluster:
        return _read(cluster, topic)


def _read(cluster: Cluster, topic: str) -> list[LedgerEntry]:
    try:
        partitions = [TopicPartition(topic, each) for each in cluster.partitions(topic)]
    except UnknownTopic:
        return []
    ranges = log_ranges(cluster, partitions)
    starts = {place: log.start for place, log in ranges.items() if log}
    entries: dict[object, LedgerEntry] = {}
    with Fetcher(cluster, starts, {place: log.stop for place, log in ranges.items()}) as fetcher:
        for fetched in fetcher:
            for batch in fetched.batches():
                for run in read_runs(batch):
                    for value in run.values:
                        entry = _parsed(topic, value)
                        if entry is not None:
                            entries.setdefault(entry.identity, entry)
    return list(entries.values())


def _parsed(topic: str, value: bytes | None) -> LedgerEntry | None:
    try:
        return entry_from_json(value or b"")
    except WireError as error:
        log.warning("ledger.entry_refused", extra=fields(topic=topic, error=str(error)))
        return None
