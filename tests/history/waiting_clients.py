"""Clients that wait for records and acknowledgements all the time, each with its library's default settings.

    python -m tests.history.waiting_clients LIBRARY ROLE NAME BOOTSTRAP TOPIC PARTITIONS_COUNT FILE

`LIBRARY` is `librdkafka`, `kafka-python`, `aiokafka` or `ottla`.  `ROLE` is `reader` (all partitions from their log
ends, no group), `member` (of its own group), `producer` (acks=all) or `asker` (polls the latest offsets).
SIGTERM ends it.  A waiting client shows how long a broker that can no longer serve it keeps it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError

import ottla
from ottla.client.wire.errors import ClientError
from tests.history.numbered_sends import FLUSH_S, NumberedSends
from tests.history.operations import LatestOffset, Poll
from tests.history.recorder import Recorder, now_ns
from tests.history.signalled_event import set_on

READER: Final = "reader"
MEMBER: Final = "member"
PRODUCER: Final = "producer"
ASKER: Final = "asker"
SEND_EVERY_S: Final = 0.1
ASK_EVERY_S: Final = 0.2
POLL_S: Final = 0.2
ASKED_WITHIN_S: Final = 5.0


class Run:
    """The common state of every client: its name, its topic, its history, and whether it must end."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions_count: int, recorder: Recorder) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = range(partitions_count)
        self.recorder = recorder
        self.stopping = threading.Event()
        set_on(signal.SIGTERM, self.stopping)

    def read(self, invoked_ns: int, partition: int, records: list[tuple[int, bytes | None]]) -> None:
        if records:
            values = tuple((offset, (value or b"").decode()) for offset, value in records)
            self.recorder.add(Poll(self.name, invoked_ns, now_ns(), partition, values))

    def ask(self, latest: Callable[[int], int | None]) -> None:
        """Poll the latest offset of each partition until the end; None: there was no response."""
        while not self.stopping.wait(ASK_EVERY_S):
            for partition in self.partitions:
                invoked_ns = now_ns()
                offset = latest(partition)
                if offset is not None:
                    self.recorder.add(LatestOffset(self.name, invoked_ns, now_ns(), partition, offset))

    def send(self, send: Callable[[NumberedSends, int], None]) -> None:
        sends = NumberedSends(self.name, self.recorder)
        while not self.stopping.wait(SEND_EVERY_S):
            for partition in self.partitions:
                send(sends, partition)


def _librdkafka_consumer(run: Run) -> Consumer:
    return Consumer({"bootstrap.servers": run.bootstrap, "group.id": run.name, "auto.offset.reset": "earliest"})


def librdkafka_reader(run: Run, *, is_member: bool = False) -> None:
    consumer = _librdkafka_consumer(run)
    if is_member:
        consumer.subscribe([run.topic])
    else:
        consumer.assign([LibrdkafkaPartition(run.topic, index, OFFSET_END) for index in run.partitions])
    while not run.stopping.is_set():
        invoked_ns = now_ns()
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            run.read(invoked_ns, partition, [(offset, message.value())])
    consumer.close()


def librdkafka_asker(run: Run) -> None:
    consumer = _librdkafka_consumer(run)

    def latest(partition: int) -> int | None:
        try:
            found = consumer.get_watermark_offsets(LibrdkafkaPartition(run.topic, partition), ASKED_WITHIN_S)
        except KafkaException:
            return None
        return None if found is None else found[1]

    run.ask(latest)
    consumer.close()


def librdkafka_producer(run: Run) -> None:
    producer = Producer({"bootstrap.servers": run.bootstrap, "enable.idempotence": True})

    def send(sends: NumberedSends, partition: int) -> None:
        value = sends.begin(partition)

        def settled(error: object, message: Message) -> None:
            offset = message.offset()
            if error is None:
                sends.stored(value, -1 if offset is None else offset)
            else:
                sends.unknown(value)

        producer.produce(run.topic, value=value, partition=partition, on_delivery=settled)
        producer.poll(0)

    run.send(send)
    producer.flush(FLUSH_S)


def kafka_python_reader(run: Run, *, is_member: bool = False) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=run.bootstrap.split(","),
        group_id=run.name if is_member else None,
        auto_offset_reset="earliest",
    )
    if is_member:
        consumer.subscribe([run.topic])
    else:
        wanted = [KafkaPythonPartition(run.topic, index) for index in run.partitions]
        consumer.assign(wanted)
        consumer.seek_to_end(*wanted)
    while not run.stopping.is_set():
        invoked_ns = now_ns()
        try:
            polled = consumer.poll(round(POLL_S * 1000))
        except KafkaError:
            continue
        for place, records in polled.items():
            run.read(invoked_ns, place.partition, [(each.offset, each.value) for each in records])
    consumer.close()


def kafka_python_asker(run: Run) -> None:
    consumer = KafkaConsumer(bootstrap_servers=run.bootstrap.split(","), group_id=None)

    def latest(partition: int) -> int | None:
        place = KafkaPythonPartition(run.topic, partition)
        try:
            offset: int = consumer.end_offsets([place], timeout_ms=round(ASKED_WITHIN_S * 1000))[place]
        except KafkaError:
            return None
        return offset

    run.ask(latest)
    consumer.close()


def kafka_python_producer(run: Run) -> None:
    producer = KafkaProducer(bootstrap_servers=run.bootstrap.split(","), acks="all", enable_idempotence=True)

    def send(sends: NumberedSends, partition: int) -> None:
        value = sends.begin(partition)

        def stored(metadata: Any) -> None:
            sends.stored(value, metadata.offset)

        future = producer.send(run.topic, value=value.encode(), partition=partition)
        future.add_callback(stored)
        future.add_errback(lambda _error: sends.unknown(value))

    run.send(send)
    producer.close(timeout=FLUSH_S)


def aiokafka_reader(run: Run, *, is_member: bool = False) -> None:
    asyncio.run(_aiokafka_read(run, is_member=is_member))


async def _aiokafka_read(run: Run, *, is_member: bool) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=run.bootstrap.split(","),
        group_id=run.name if is_member else None,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    if is_member:
        consumer.subscribe([run.topic])
    else:
        wanted = [AiokafkaPartition(run.topic, index) for index in run.partitions]
        consumer.assign(wanted)
        await consumer.seek_to_end(*wanted)
    while not run.stopping.is_set():
        invoked_ns = now_ns()
        try:
            polled = await consumer.getmany(timeout_ms=round(POLL_S * 1000))
        except AiokafkaError:
            continue
        for place, records in polled.items():
            run.read(invoked_ns, place.partition, [(each.offset, each.value) for each in records])
    await consumer.stop()


def aiokafka_asker(run: Run) -> None:
    loop = asyncio.new_event_loop()

    async def start() -> AIOKafkaConsumer:
        started = AIOKafkaConsumer(bootstrap_servers=run.bootstrap.split(","), group_id=None)
        await started.start()
        return started

    consumer = loop.run_until_complete(start())

    async def ask(place: AiokafkaPartition) -> int:
        async with asyncio.timeout(ASKED_WITHIN_S):
            found: int = (await consumer.end_offsets([place]))[place]
            return found

    def latest(partition: int) -> int | None:
        try:
            return loop.run_until_complete(ask(AiokafkaPartition(run.topic, partition)))
        except (AiokafkaError, TimeoutError):
            return None

    run.ask(latest)
    loop.run_until_complete(consumer.stop())


def aiokafka_producer(run: Run) -> None:
    asyncio.run(_aiokafka_send(run))


async def _aiokafka_send(run: Run) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=run.bootstrap.split(","), enable_idempotence=True, acks="all")
    await producer.start()
    sends = NumberedSends(run.name, run.recorder)
    waiting: set[asyncio.Task[None]] = set()

    async def settle(value: str, delivery: asyncio.Future[Any]) -> None:
        try:
            sends.stored(value, (await delivery).offset)
        except AiokafkaError:
            sends.unknown(value)

    while not run.stopping.is_set():
        for partition in run.partitions:
            value = sends.begin(partition)
            delivery = await producer.send(run.topic, value.encode(), partition=partition)
            task = asyncio.create_task(settle(value, delivery))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.sleep(SEND_EVERY_S)
    await producer.stop()


def ottla_reader(run: Run, *, is_member: bool = False) -> None:
    if is_member:
        with ottla.ConsumerConnector(run.bootstrap, group=run.name, auto_offset_reset="earliest") as connector:
            (stream,) = connector.create_message_streams({run.topic: 1})[run.topic]
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            invoked_ns = now_ns()
            for message in stream:
                run.read(invoked_ns, message.partition, [(message.offset, message.value)])
                invoked_ns = now_ns()
        return
    threads = [threading.Thread(target=_ottla_read, args=(run, partition)) for partition in run.partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ottla_read(run: Run, partition: int) -> None:
    with ottla.SimpleConsumer(run.bootstrap, run.topic, partition) as consumer:
        offset = consumer.latest()
        while not run.stopping.is_set():
            invoked_ns = now_ns()
            try:
                messages = consumer.fetch(offset)
            except ClientError:
                time.sleep(SEND_EVERY_S)
                continue
            run.read(invoked_ns, partition, [(each.offset, each.value) for each in messages])
            offset = messages[-1].offset + 1 if messages else offset


def ottla_asker(run: Run) -> None:
    consumers = [ottla.SimpleConsumer(run.bootstrap, run.topic, partition) for partition in run.partitions]

    def latest(partition: int) -> int | None:
        try:
            return consumers[partition].latest()
        except ClientError:
            return None

    run.ask(latest)


def ottla_producer(run: Run) -> None:
    with ottla.Producer(run.bootstrap) as producer:

        def send(sends: NumberedSends, partition: int) -> None:
            value = sends.begin(partition)
            delivery = producer.send(run.topic, value.encode(), partition=partition)
            delivery.add_done_callback(lambda done: _settle(sends, value, done))

        run.send(send)


def _settle(sends: NumberedSends, value: str, done: Any) -> None:
    if done.error() is None:
        sends.stored(value, done.wait().offset)
    else:
        sends.unknown(value)


ROLES: Final = (READER, MEMBER, PRODUCER, ASKER)
CLIENTS: Final[Mapping[str, Sequence[Callable[[Run], None]]]] = {
    "librdkafka": (
        librdkafka_reader,
        partial(librdkafka_reader, is_member=True),
        librdkafka_producer,
        librdkafka_asker,
    ),
    "kafka-python": (
        kafka_python_reader,
        partial(kafka_python_reader, is_member=True),
        kafka_python_producer,
        kafka_python_asker,
    ),
    "aiokafka": (aiokafka_reader, partial(aiokafka_reader, is_member=True), aiokafka_producer, aiokafka_asker),
    "ottla": (ottla_reader, partial(ottla_reader, is_member=True), ottla_producer, ottla_asker),
}


def main(library: str, role: str, name: str, bootstrap: str, topic: str, partitions_count: int, file: str) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    with Recorder(Path(file)) as recorder:
        CLIENTS[library][ROLES.index(role)](Run(name, bootstrap, topic, partitions_count, recorder))


if __name__ == "__main__":
    _, LIBRARY, ROLE, NAME, BOOTSTRAP, TOPIC, COUNT, FILE = sys.argv
    main(LIBRARY, ROLE, NAME, BOOTSTRAP, TOPIC, int(COUNT), FILE)
