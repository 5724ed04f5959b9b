"""A client that writes to one broker only, and records what it acknowledges, and when."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple

from ottla.client.producing.produce_queue import PendingBatch
from ottla.client.producing.produce_requests import produce_body, read_answers
from ottla.client.wire.address import Address
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.transport import dial_tcp
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.runtime.clock import SystemClock
from ottla.testing.broker import RunningBroker
from tests.cluster.fault_without_effect import FaultWithoutEffect

_WRITE_EVERY_S: Final = 0.01
_CALL_TIMEOUT_MS: Final = 2_000
_CLOCK: Final = SystemClock()
_OPTIONS: Final = ClientOptions(client_id="fence", connect_timeout_ms=_CALL_TIMEOUT_MS)


class Acknowledged(NamedTuple):
    """By the clock of the machine, like ZooKeeper's modification times and the times of traces."""

    sent_ms: float
    answered_ms: float


class DirectWriter:
    """Writes to one broker, leader or not, one record after the other, and records when each was acknowledged."""

    def __init__(self, broker: RunningBroker, partition: TopicPartition, acks: int) -> None:
        self.acks = acks
        self.acknowledged: list[Acknowledged] = []
        self._address = Address(broker.host, broker.port)
        self._partition = partition
        self._enough = threading.Condition()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._write_on, daemon=True)

    def wait_for_acknowledgements(self, count: int) -> None:
        with self._enough:
            if not self._enough.wait_for(lambda: len(self.acknowledged) >= count, timeout=60):
                raise FaultWithoutEffect(f"{self._address} acknowledges nothing with acks={self.acks}")

    def __enter__(self) -> DirectWriter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _write_on(self) -> None:
        while not self._is_stopped.is_set():
            with suppress(ClientError):
                connection = Connection.open(self._address, dial_tcp, _OPTIONS, _CLOCK, self._deadline())
                try:
                    while not self._is_stopped.wait(_WRITE_EVERY_S):
                        self._write(connection)
                finally:
                    connection.close()

    def _write(self, connection: Connection) -> None:
        deadline = self._deadline()
        batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, b"fence")])
        version = connection.version_of(ApiKey.PRODUCE)
        row = PendingBatch(self._partition, batch, 1, 1, deadline, None)
        sent_ms = time.time() * 1000
        connection.send(ApiKey.PRODUCE, version, produce_body(version, self.acks, _CALL_TIMEOUT_MS, [row]), deadline)
        _, body = connection.receive(deadline)
        answered_ms = time.time() * 1000
        if read_answers(connection, version, body)[self._partition].error is None:
            with self._enough:
                self.acknowledged.append(Acknowledged(sent_ms, answered_ms))
                self._enough.notify_all()

    def _deadline(self) -> Deadline:
        return Deadline(_CLOCK, _CALL_TIMEOUT_MS)
