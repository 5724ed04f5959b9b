"""A process that sends numbered records through kafka-python's idempotent producer until SIGTERM.

python -m tests.history.producing_kafka_python NAME BOOTSTRAP TOPIC PARTITIONS_COUNT FILE
"""

from __future__ import annotations

import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from tests.history.numbered_sends import FLUSH_S, PAUSE_S, NumberedSends
from tests.history.recorder import Recorder
from tests.history.signalled_event import set_on


def main(name: str, bootstrap: str, topic: str, partitions_count: int, file: str) -> None:
    stopping = threading.Event()
    set_on(signal.SIGTERM, stopping)
    rng = random.Random(name)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        enable_idempotence=True,
        acks="all",
        linger_ms=2,
        delivery_timeout_ms=60_000,
        request_timeout_ms=10_000,
        reconnect_backoff_max_ms=200,
        retry_backoff_ms=50,
    )
    with Recorder(Path(file)) as recorder:
        sends = NumberedSends(name, recorder)

        def send(partition: int) -> None:
            value = sends.begin(partition)

            def stored(metadata: Any) -> None:
                sends.stored(value, metadata.offset)

            future = producer.send(topic, value=value.encode(), partition=partition)
            future.add_callback(stored)
            future.add_errback(lambda _error: sends.unknown(value))

        while not stopping.is_set():
            for _ in range(rng.randrange(1, 8)):
                send(rng.randrange(partitions_count))
            stopping.wait(PAUSE_S)
        producer.flush(FLUSH_S)
        producer.close()


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, COUNT, FILE = sys.argv
    main(NAME, BOOTSTRAP, TOPIC, int(COUNT), FILE)
