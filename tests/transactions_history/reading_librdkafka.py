"""A process that reads all committed results from their start until SIGTERM.

python -m tests.transactions_history.reading_librdkafka NAME BOOTSTRAP TOPIC PARTITIONS_COUNT FILE
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.history.operations import CommittedRead
from tests.history.recorder import Recorder, now_ns
from tests.history.signalled_event import set_on
from tests.transactions_history.worker import Record, results_topic

POLL_S: Final = 0.2
RECORDS_PER_POLL_MAX: Final = 500
# A planted fault sets another one.
ISOLATION = "read_committed"


def committed_reads(
    name: str, bootstrap: str, topic: str, partitions_count: int, is_over: Callable[[Mapping[int, int]], bool]
) -> Iterator[CommittedRead]:
    """Reads of all partitions until `is_over` of the offsets that have been reached."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "isolation.level": ISOLATION,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 200,
        }
    )
    reached: dict[int, int] = dict.fromkeys(range(partitions_count), 0)
    try:
        consumer.assign([TopicPartition(results_topic(topic), partition, 0) for partition in reached])
        while not is_over(reached):
            invoked_ns = now_ns()
            records: dict[int, list[Record]] = defaultdict(list)
            for message in consumer.consume(RECORDS_PER_POLL_MAX, POLL_S):
                partition, offset, value, error = (
                    message.partition(),
                    message.offset(),
                    message.value(),
                    message.error(),
                )
                if partition is None or offset is None:
                    continue
                if error is None and value is not None:
                    records[partition].append((offset, value.decode()))
                    reached[partition] = offset + 1
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                    # Beyond markers and what was aborted.
                    reached[partition] = max(reached[partition], offset)
            completed_ns = now_ns()
            for partition, of_partition in records.items():
                yield CommittedRead(name, invoked_ns, completed_ns, partition, tuple(of_partition))
    finally:
        consumer.close()


def main(name: str, bootstrap: str, topic: str, partitions_count: int, file: str) -> None:
    stopping = threading.Event()
    set_on(signal.SIGTERM, stopping)
    with Recorder(Path(file)) as recorder:
        for read in committed_reads(name, bootstrap, topic, partitions_count, lambda _: stopping.is_set()):
            recorder.add(read)


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, COUNT, FILE = sys.argv
    main(NAME, BOOTSTRAP, TOPIC, int(COUNT), FILE)
