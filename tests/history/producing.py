"""A process that sends numbered records through librdkafka's idempotent producer until it is told to stop (SIGTERM).

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

from tests.history.operations import Outcome, Send
from tests.history.recorder import Recorder, now_ns

PAUSE_S: Final = 0.01
FLUSH_S: Final = 60.0
# Errors that promise that the record is not and will not be stored.
DEFINITE: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TIMESTAMP,
    }
)


class NumberedSends:
    """One producer's records; each is written down when its fate is known, and at the end those whose is not."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        self._name = name
        self._recorder = recorder
        self._number = 0
        self._under_way: dict[str, tuple[int, int]] = {}

    def send(self, producer: Producer, topic: str, partition: int) -> None:
        value = f"{self._name}:{self._number}"
        self._number += 1
        invoked_ns = now_ns()
        self._under_way[value] = invoked_ns, partition
        # Before it is sent: of a killed producer nobody else could tell which values it had begun to send.
        self._recorder.add(Send(self._name, invoked_ns, invoked_ns, Outcome.UNKNOWN, partition, value, -1))

        def settled(error: KafkaError | None, message: Message) -> None:
            self._settle(value, error, message)

        producer.produce(topic, value=value, partition=partition, on_delivery=settled)

    def _settle(self, value: str, error: KafkaError | None, message: Message) -> None:
        invoked_ns, partition = self._under_way.pop(value)
        offset = message.offset()
        if error is None and offset is not None:
            outcome = Outcome.OK
        else:
            outcome = Outcome.FAILED if error is not None and error.code() in DEFINITE else Outcome.UNKNOWN
            offset = -1
        self._recorder.add(Send(self._name, invoked_ns, now_ns(), outcome, partition, value, offset))


def main(name: str, bootstrap: str, topic: str, partitions_count: int, file: str) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    rng = random.Random(name)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.max.ms": 200,
            "delivery.timeout.ms": 60_000,
        }
    )
    with Recorder(Path(file)) as recorder:
        sends = NumberedSends(name, recorder)
        while not stopping.is_set():
            for _ in range(rng.randrange(1, 8)):
                sends.send(producer, topic, rng.randrange(partitions_count))
            producer.poll(0)
            stopping.wait(PAUSE_S)
        producer.flush(FLUSH_S)


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, COUNT, FILE = sys.argv
    main(NAME, BOOTSTRAP, TOPIC, int(COUNT), FILE)
