"""What clients report of a real broker: logs, statistics, interceptors; and a line on which each answer takes long."""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest

import ottla
import ottla.aio
from ottla.client.fetching.messages import Message
from ottla.client.producing.delivery import Receipt
from ottla.client.producing.producer_metrics import ProducerMetrics
from ottla.client.streams.consumer_metrics import ConsumerMetrics
from ottla.interceptors import ConsumerInterceptor, OutgoingMessages, ProducerInterceptor
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.event_loop import run
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually

DELAY_S: Final = 0.3
WAIT_MS: Final = 30_000


class SlowLine:
    """Forwards connections to a broker, and holds what it answers back for `DELAY_S`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._broker_port = 0

    def start(self, broker_port: int) -> None:
        self._broker_port = broker_port
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
                self._sockets += [client, broker]
                for ends in ((client, broker, 0.0), (broker, client, DELAY_S)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, delay_s: float) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(delay_s)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def slow_line() -> Iterator[SlowLine]:
    line = SlowLine()
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{line.port}"}
    with RunningBroker(settings=settings) as broker:
        line.start(broker.port)
        yield line
    line.close()


def test_clients_on_a_slow_line_wait_for_each_answer_and_not_for_all_of_them_together(slow_line: SlowLine) -> None:
    bootstrap = f"127.0.0.1:{slow_line.port}"
    with ottla.Producer(bootstrap, request_timeout_ms=500, linger_ms=0) as producer:
        assert producer.send("slow", b"x").wait(WAIT_MS).offset == 0
        assert producer.metrics().requests.latencies["PRODUCE"].max_ms >= 250
    with ottla.Consumer(bootstrap, request_timeout_ms=500, auto_offset_reset="earliest") as consumer:
        consumer.assign([("slow", 0)])
        message = consumer.poll(timeout_ms=WAIT_MS)
        assert message is not None
        assert message.value == b"x"
    with ottla.Admin(bootstrap, request_timeout_ms=500) as admin:
        assert "slow" in [topic.name for topic in admin.list_topics()]


class Noting(ProducerInterceptor, ConsumerInterceptor):
    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.consumed: list[bytes] = []
        self.committed: dict[TopicPartition, int] = {}

    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        return replace(messages, headers=(*messages.headers, ("origin", b"here")))

    def on_acknowledgement(
        self, messages: OutgoingMessages, receipts: Sequence[Receipt], error: OttlaError | None
    ) -> None:
        self.receipts += receipts

    def on_consume(self, messages: Sequence[Message[Any, Any]]) -> Sequence[Message[Any, Any]]:
        self.consumed += [message.value for message in messages]
        return messages

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed.update(offsets)


def new_topic(broker: RunningBroker) -> str:
    name = f"reports-{uuid.uuid4().hex[:10]}"
    with ottla.Admin(broker.bootstrap) as admin:
        admin.create_topic(name, 2)
    return name


def test_interceptors_see_messages_receipts_and_commits(broker: RunningBroker) -> None:
    topic, noting = new_topic(broker), Noting()
    with ottla.Producer(broker.bootstrap, interceptors=[noting]) as producer:
        producer.send(topic, b"one", partition=0)
        producer.send(topic, [b"two", b"three"], partition=1)
    assert sorted((receipt.partition, receipt.offset) for receipt in noting.receipts) == [(0, 0), (1, 0), (1, 1)]
    consumer = ottla.Consumer(broker.bootstrap, group=topic, auto_offset_reset="earliest", interceptors=[noting])
    with consumer:
        consumer.subscribe([topic])
        messages = [message for _, message in zip(range(2), consumer, strict=False)]
        while len(messages) < 3:
            messages += consumer.poll_many(timeout_ms=WAIT_MS)
        assert {message.header("origin") for message in messages} == {b"here"}
        consumer.commit()
    assert sorted(noting.consumed) == [b"one", b"three", b"two"]
    assert noting.committed == {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 2}


def test_the_clients_for_asyncio_have_interceptors_and_metrics(broker: RunningBroker) -> None:
    topic, noting = new_topic(broker), Noting()

    async def send() -> None:
        async with ottla.aio.Producer(broker.bootstrap, interceptors=[noting]) as producer:
            await producer.send(topic, b"one", partition=0)
            await producer.send(topic, [b"two"], partition=0)
            assert producer.metrics().messages_stored_count == 2

    async def consume() -> None:
        consumer = ottla.aio.Consumer(broker.bootstrap, auto_offset_reset="earliest", interceptors=[noting])
        async with consumer:
            consumer.assign([(topic, 0)])
            async for message in consumer:
                assert message.header("origin") == b"here"
                break
            assert [message.value for message in await consumer.poll_many(timeout_ms=WAIT_MS)] == [b"two"]
            assert consumer.metrics().partitions[TopicPartition(topic, 0)].lag == 0

    run(send())
    assert [receipt.offset for receipt in noting.receipts] == [0, 1]
    run(consume())
    assert noting.consumed == [b"one", b"two"]


def test_statistics_and_logs_follow_a_consumer_of_a_group(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.client")
    topic = new_topic(broker)
    produced: list[ProducerMetrics] = []
    with ottla.Producer(
        broker.bootstrap, compression="zstd", statistics_interval_ms=20, on_statistics=produced.append
    ) as producer:
        producer.send(topic, [b"x" * 1_000] * 500, partition=0)
        producer.flush()
        eventually(lambda: [each for each in produced if each.messages_stored_count == 500])
    assert produced[-1].compression_ratio < 0.1
    assert produced[-1].requests.in_flight_count == 0
    consumed: list[ConsumerMetrics] = []
    with ottla.Consumer(
        broker.bootstrap,
        group=topic,
        auto_offset_reset="earliest",
        statistics_interval_ms=20,
        on_statistics=consumed.append,
    ) as consumer:
        consumer.subscribe([topic])
        # Not `messages_count`: it counts a whole batch when the batch is opened.
        messages_count = 0
        while messages_count < 500:
            messages_count += len(consumer.poll_many(timeout_ms=WAIT_MS))
        partition = TopicPartition(topic, 0)
        # The last report may be older than the assignment.
        eventually(lambda: consumed and partition in consumed[-1].partitions)
        eventually(lambda: consumed[-1].partitions[partition].lag == 0)
        assert consumed[-1].messages_count == 500
        assert consumed[-1].partitions[partition].high_watermark == 500
        assert {"FETCH", "METADATA"} <= consumed[-1].requests.latencies.keys()
    events = [vars(record).get("ottla_event") for record in caplog.records]
    assert [event for event in events if event in ("rebalance.started", "rebalance.ended", "group.left")][:2] == [
        "rebalance.started",
        "rebalance.ended",
    ]
    assert "group.left" in events
    assert "x" * 100 not in caplog.text
