"""Every offset that groups have committed to brokers, in the order of their log, `__consumer_offsets`."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from ottla.groups.offset_records import decode_offset_value, parse_offset_key
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition

_BATCH: Final = 1_000
_ANSWER_WITHIN_S: Final = 60.0
_TURN_S: Final = 0.2
_END: Final = -191  # _PARTITION_EOF
# The first bytes of a key: a committed offset.
_OFFSET_KEYS: Final = (b"\x00\x00", b"\x00\x01")


def read_commits(bootstrap: str) -> dict[str, dict[TopicPartition, list[int]]]:
    """Of every group and partition; a deleted offset starts a new sequence."""
    found: dict[str, dict[TopicPartition, list[int]]] = defaultdict(lambda: defaultdict(list))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "offsets-log",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        metadata = consumer.list_topics(OFFSETS_TOPIC, timeout=_ANSWER_WITHIN_S).topics[OFFSETS_TOPIC]
        unread = set(metadata.partitions)
        consumer.assign([LibrdkafkaPartition(OFFSETS_TOPIC, index, OFFSET_BEGINNING) for index in unread])
        give_up_s = time.monotonic() + _ANSWER_WITHIN_S
        while unread:
            assert time.monotonic() < give_up_s, f"no answer for partitions {sorted(unread)} of {OFFSETS_TOPIC}"
            # It waits for this many records, or for the whole time.
            for record in consumer.consume(_BATCH, timeout=_TURN_S):
                error = record.error()
                if error is not None:
                    assert error.code() == _END, error
                    unread.discard(record.partition())
                    continue
                key, value = record.key() or b"", record.value()
                if key[:2] in _OFFSET_KEYS:
                    group, topic, partition = parse_offset_key(key)
                    offsets = found[group.decode()][TopicPartition(topic.decode(), partition)]
                    if value is None:
                        offsets.clear()
                    else:
                        offsets.append(decode_offset_value(value).offset)
    finally:
        consumer.close()
    return found
