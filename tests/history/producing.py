"""A process that sends numbered records through librdkafka's idempotent producer until SIGTERM.

python -m tests.history.producing NAME BOOTSTRAP TOPIC PARTITIONS_COUNT FILE
"""

from __future__ import annotations

import random
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from tests.history.numbered_sends import FLUSH_S, PAUSE_S, NumberedSends
from tests.history.recorder import Recorder
from tests.history.signalled_event import set_on

SOCKET_TIMEOUT_MS: Final = 5_000
# Errors that guarantee that the record is not and will not be stored.
DEFINITE: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TIMESTAMP,
    }
)


def main(name: str, bootstrap: str, topic: str, partitions_count: int, file: str) -> None:
    stopping = threading.Event()
    set_on(signal.SIGTERM, stopping)
    rng = random.Random(name)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            # After an outage a batch is as large as it may be: it must fit a segment, and the topic's are small.
            "batch.size": 32_768,
            # A broker that is cut off does not answer: otherwise a metadata request waits a minute for it.
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.max.ms": 200,
            "delivery.timeout.ms": 60_000,
        }
    )
    with Recorder(Path(file)) as recorder:
        sends = NumberedSends(name, recorder)

        def send(partition: int) -> None:
            value = sends.begin(partition)

            def settled(error: KafkaError | None, message: Message) -> None:
                offset = message.offset()
                if error is None:
                    # There is no offset when its acknowledgement was lost and a later one covered it.
                    sends.stored(value, -1 if offset is None else offset)
                elif error.code() in DEFINITE:
                    sends.failed(value)
                else:
                    sends.unknown(value)
                    sys.stderr.write(f"{value}: error {error}\n")

            producer.produce(topic, value=value, partition=partition, on_delivery=settled)

        while not stopping.is_set():
            for _ in range(rng.randrange(1, 8)):
                send(rng.randrange(partitions_count))
            producer.poll(0)
            stopping.wait(PAUSE_S)
        producer.flush(FLUSH_S)


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, COUNT, FILE = sys.argv
    main(NAME, BOOTSTRAP, TOPIC, int(COUNT), FILE)
