"""The topic of lost offsets: created, written and read."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.client.topic_log import NotAppended, TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.given import given_security
from ottla.client.wire.security.settings import ClientSecurity
from ottla.lost_offsets.entry import LostOffsets, LostRange, entry_from_json, entry_key, entry_to_json
from ottla.model.errors import WireError
from ottla.model.own_names import LEDGER_TOPIC
from ottla.observe.events import fields

log = logging.getLogger(__name__)

# One partition keeps the order of writing, and nothing is deleted.
PARTITIONS_COUNT: Final = 1
# Or as many as there are brokers: the proof of a loss must survive one dead disk.
REPLICAS_COUNT: Final = 3
TOPIC_CONFIGS: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class LostOffsetsNotWritten(ClientError):
    """The lost ranges are not stored, so nothing after them may be read."""

    is_retriable = True
    hint = "the read can be repeated; the ledger's topic must be writable"


def write_losses(cluster: Cluster, topic: str, reader: str, losses: Sequence[LostRange]) -> None:
    """Returns when all in-sync replicas have the entries.

    The topic is created unless it is there, with three replicas, or as many as there are brokers.
    Raises ClientError; then any part of them may be stored, and they may be written again.
    """
    now_ms = cluster.clock.now_ms()
    rows = [(entry_key(lost), entry_to_json(LostOffsets(lost, reader, now_ms))) for lost in losses]
    log_of_losses = TopicLog(cluster, topic)
    log_of_losses.ensure(PARTITIONS_COUNT, REPLICAS_COUNT, TOPIC_CONFIGS)
    try:
        log_of_losses.append(rows, timeout_ms=cluster.options.call_timeout_ms)
    except NotAppended as error:
        raise LostOffsetsNotWritten(f"{len(losses)} lost ranges were not written to {topic}: {error}") from error


def read_lost_offsets(
    bootstrap: str | Cluster,
    topic: str = LEDGER_TOPIC,
    *,
    security: ClientSecurity | Mapping[str, object] | None = None,
) -> list[LostOffsets]:
    """The entries up to the topic's end as it is now, in the order of their first writing, each once.

    None when there is no such topic: nothing was lost.  `security`, of the connection to an address: settings by
    Kafka's names, or a `ClientSecurity`.  Raises ClientError.
    """
    if isinstance(bootstrap, Cluster):
        return _read(bootstrap, topic)
    with Cluster(bootstrap, ClientOptions(security=given_security(security))) as cluster:
        return _read(cluster, topic)


def _read(cluster: Cluster, topic: str) -> list[LostOffsets]:
    entries: dict[object, LostOffsets] = {}
    for message in TopicLog(cluster, topic).read():
        entry = _parsed(topic, message.value)
        if entry is not None:
            entries.setdefault(entry.identity, entry)
    return list(entries.values())


def _parsed(topic: str, value: bytes | None) -> LostOffsets | None:
    try:
        return entry_from_json(value or b"")
    except WireError as error:
        log.warning("ledger.entry_refused", extra=fields(topic=topic, error=str(error)))
        return None
