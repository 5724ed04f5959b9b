"""The four systems, seen alike: a place for messages is made, filled, read and removed; durable or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tests.peers import activemq, rabbitmq
from tests.peers.activemq import ActiveMQ
from tests.peers.kafka_jars import kafka_version
from tests.peers.rabbitmq import RabbitMQ

from bench.paper.java_client import run_java_client
from bench.paper.librdkafka_client import run_librdkafka_client
from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, PEERS
from bench.peers.peer import Peer
from bench.raw_client.load import ProduceLoad, put_load
from bench.scenarios.topics import count_records
from bench.wire import Wire

JAVA: Final = "java"
LIBRDKAFKA: Final = "librdkafka"
OTTLA: Final = "ottla"
RABBITMQ: Final = "rabbitmq"
ACTIVEMQ: Final = "activemq"
FILL_BATCH: Final = 50


class Process(Protocol):
    def cpu_seconds(self) -> float: ...
    def rss_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Load:
    """A window of `seconds` after `warmup_s`; a queue's consumer reads `messages` instead, as reading empties it."""

    warmup_s: float
    seconds: float
    batch: int = 1
    messages: int = 0


class System(Protocol):
    """A running one.  `name` of a place is new for each load; figures are the clients' own words."""

    @property
    def clients(self) -> tuple[str, ...]: ...
    @property
    def process(self) -> Process: ...
    def make(self, name: str, is_durable: bool) -> None: ...
    def fill(self, name: str, is_durable: bool, messages: int) -> None: ...
    def produce(self, client: str, name: str, is_durable: bool, load: Load) -> dict[str, float]: ...
    def consume(self, client: str, name: str, is_durable: bool, load: Load) -> dict[str, float]: ...
    def remove(self, name: str) -> int:
        """Gives the messages that were stored in it; -1 where the system does not report it."""


class KafkaSystem:
    """Ottla or Apache Kafka: durability is a setting of the topic."""

    clients = (LIBRDKAFKA, JAVA)

    def __init__(self, peer: Peer, settings: Mapping[bool, Mapping[str, str]]) -> None:
        self.peer = peer
        self._settings = settings
        self._address = f"127.0.0.1:{peer.port}"

    @property
    def process(self) -> Process:
        return self.peer

    def make(self, name: str, is_durable: bool) -> None:
        with Wire(self.peer.port) as wire:
            wire.create_topic(name, 1, self._settings[is_durable])

    def fill(self, name: str, is_durable: bool, messages: int) -> None:
        put_load(ProduceLoad(FILL_BATCH, in_flight=5, requests=messages // FILL_BATCH), self.peer.port, name)

    def produce(self, client: str, name: str, is_durable: bool, load: Load) -> dict[str, float]:
        return self._run(client, "produce", name, load)

    def consume(self, client: str, name: str, is_durable: bool, load: Load) -> dict[str, float]:
        return self._run(client, "consume", name, load)

    def remove(self, name: str) -> int:
        stored = count_records(self.peer, name, 1)
        with Wire(self.peer.port) as wire:  # its files may go when they like: they are few
            wire.delete_topic(name)
        return stored

    def _run(self, client: str, mode: str, name: str, load: Load) -> dict[str, float]:
        if client == LIBRDKAFKA:
            return run_librdkafka_client(mode, self._address, name, load.batch, load.warmup_s, load.seconds)
        options = {"batch": load.batch, "warmup_s": load.warmup_s, "seconds": load.seconds}
        return run_java_client(mode, "kafka", self._address, name, **options)


class QueueSystem:
    """RabbitMQ or ActiveMQ: durability is the queue's and the messages' own."""

    clients = (JAVA,)

    def __init__(self, kind: str, server: RabbitMQ | ActiveMQ) -> None:
        self._kind = kind
        self._server = server

    @property
    def process(self) -> Process:
        return self._server

    def make(self, name: str, is_durable: bool) -> None:
        """Producers make their queue."""

    def fill(self, name: str, is_durable: bool, messages: int) -> None:
        self._run("produce", name, durable=_word(is_durable), batch=FILL_BATCH, messages=messages)

    def produce(self, client: str, name: str, is_durable: bool, load: Load) -> dict[str, float]:
        options = {"batch": load.batch, "warmup_s": load.warmup_s, "seconds": load.seconds}
        return self._run("produce", name, durable=_word(is_durable), **options)

    def consume(self, client: str, name: str, is_durable: bool, load: Load) -> dict[str, float]:
        return self._run("consume", name, durable=_word(is_durable), messages=load.messages)

    def remove(self, name: str) -> int:
        return int(self._run("delete", name)["messages"])

    def _run(self, mode: str, name: str, **options: str | float) -> dict[str, float]:
        return run_java_client(mode, self._kind, self._server.address, name, **options)


def _word(flag: bool) -> str:
    return "true" if flag else "false"


@contextmanager
def _start_kafka(name: str, settings: Mapping[bool, Mapping[str, str]], work_dir: Path) -> Iterator[System]:
    with PEERS[name](work_dir) as peer:
        yield KafkaSystem(peer, settings)


@contextmanager
def _start_rabbitmq(work_dir: Path) -> Iterator[System]:
    with RabbitMQ(work_dir) as server:
        yield QueueSystem(RABBITMQ, server)


@contextmanager
def _start_activemq(work_dir: Path) -> Iterator[System]:
    with ActiveMQ(work_dir) as server:
        yield QueueSystem(ACTIVEMQ, server)


def _start_ottla(work_dir: Path) -> AbstractContextManager[System]:
    return _start_kafka(OTTLA_ACK, {True: {"flush.policy": "ack"}, False: {"flush.policy": "os"}}, work_dir)


def _start_apache_kafka(work_dir: Path) -> AbstractContextManager[System]:
    return _start_kafka(APACHE_KAFKA, {True: {"flush.messages": "1"}, False: {}}, work_dir)


SYSTEMS: Final[Mapping[str, Callable[[Path], AbstractContextManager[System]]]] = {
    OTTLA: _start_ottla,
    APACHE_KAFKA: _start_apache_kafka,
    RABBITMQ: _start_rabbitmq,
    ACTIVEMQ: _start_activemq,
}
VERSIONS: Final[Mapping[str, Callable[[], str]]] = {
    APACHE_KAFKA: kafka_version,
    RABBITMQ: rabbitmq.rabbitmq_version,
    ACTIVEMQ: lambda: activemq.VERSION,
}
