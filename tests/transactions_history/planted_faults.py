"""Clients with a planted fault: a run with them must be judged wrong, or its clean result proves nothing.

python -m tests.transactions_history.planted_faults FAULT CLIENT ARGUMENT...

`CLIENT` is a module of this folder, and the arguments are its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, NamedTuple

from confluent_kafka import TopicPartition

from tests.transactions_history import reading_librdkafka, working_librdkafka
from tests.transactions_history.report import Anomaly
from tests.transactions_history.working_librdkafka import LibrdkafkaTransactions

_OPEN: Final = "read_uncommitted"


def readers_get_what_is_open() -> None:
    """Readers do not wait for the end of transactions."""
    reading_librdkafka.ISOLATION = _OPEN


def workers_read_what_is_open() -> None:
    """They compute from results of transactions that are open or were aborted."""
    working_librdkafka.ISOLATION = _OPEN


def offsets_are_committed_apart() -> None:
    """By the consumer, before the transaction: an abort loses inputs."""

    def send_offsets(self: LibrdkafkaTransactions, offsets: Mapping[int, int]) -> None:
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        self._consumer.commit(offsets=wanted, asynchronous=False)

    LibrdkafkaTransactions.send_offsets = send_offsets  # type: ignore[method-assign]


def results_are_committed_apart() -> None:
    """Each result of a transaction in its own: an abort ends the last one only."""
    send = LibrdkafkaTransactions.send

    def send_and_commit(
        self: LibrdkafkaTransactions, partition: int, value: str, acknowledged: Callable[[int], None]
    ) -> None:
        if not value.endswith("#0"):
            self.commit()
            self.begin()
        send(self, partition, value, acknowledged)

    LibrdkafkaTransactions.send = send_and_commit  # type: ignore[method-assign]


class Planted(NamedTuple):
    """A fault, the clients that have it, and the anomalies of which the checker must report at least one."""

    plant: Callable[[], None]
    client: str
    expected: frozenset[Anomaly]


PLANTED: Final[Mapping[str, Planted]] = {
    "readers-get-what-is-open": Planted(
        readers_get_what_is_open, "reading_librdkafka", frozenset({Anomaly.ABORTED_READ, Anomaly.VANISHED})
    ),
    "workers-read-what-is-open": Planted(
        workers_read_what_is_open,
        "working_librdkafka",
        frozenset({Anomaly.ABORTED_READ, Anomaly.VANISHED, Anomaly.WRONG_STATE}),
    ),
    "offsets-are-committed-apart": Planted(
        offsets_are_committed_apart,
        "working_librdkafka",
        frozenset({Anomaly.INPUT_LOST, Anomaly.OFFSET_OF_NO_COMMIT}),
    ),
    "results-are-committed-apart": Planted(
        results_are_committed_apart, "working_librdkafka", frozenset({Anomaly.TORN, Anomaly.ABORTED_READ})
    ),
}

if __name__ == "__main__":
    _, FAULT, CLIENT, *ARGUMENTS = sys.argv
    PLANTED[FAULT].plant()
    module = import_module(f"tests.transactions_history.{CLIENT}")
    if CLIENT == "reading_librdkafka":
        NAME, BOOTSTRAP, TOPIC, COUNT, FILE = ARGUMENTS
        module.main(NAME, BOOTSTRAP, TOPIC, int(COUNT), FILE)
    else:
        module.main(*ARGUMENTS)
