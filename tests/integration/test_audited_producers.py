"""The counts that producers report to a real broker's `ottla-audit`."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import ottla
import ottla.aio
from ottla.audit import AioProducerAudit, AuditTopic, ConfluentProducer, ProducerAudit
from ottla.audit.snapshot import AuditSnapshot
from ottla.audit.topic import CountsNotSent
from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType, describe_configs
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import CallTimedOut
from ottla.errors import MessagesNotDelivered
from ottla.model.own_names import AUDIT_TOPIC
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually

TEN_MINUTES_MS = 600_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with RunningBroker(settings={"num.partitions": "2"}) as broker:
        yield broker.bootstrap


def read(bootstrap: str) -> AuditSnapshot:
    with AuditTopic(bootstrap) as topic:
        return topic.read()


def counted(bootstrap: str, topic: str) -> Counter[int]:
    """By the window's start."""
    found: Counter[int] = Counter()
    for count in read(bootstrap).counts:
        if count.key.topic == topic:
            assert count.key.tier == "producer"
            found[count.key.window.start_ms] += count.records
    return found


def ends(bootstrap: str, topic: str) -> list[bool]:
    return [report.has_ended for report in read(bootstrap).reports if report.key.topic == topic]


def test_messages_that_were_acknowledged_are_counted_by_event_time(bootstrap: str) -> None:
    with ottla.Producer(bootstrap) as producer, ProducerAudit(producer):
        for number in range(1_000):
            producer.send("by-time", b"v", timestamp_ms=number * 1_000)
        producer.send("by-time", [b"a", b"b"], timestamp_ms=5)
    assert counted(bootstrap, "by-time") == {0: 602, TEN_MINUTES_MS: 400}
    assert ends(bootstrap, "by-time") == [True]


def test_messages_that_failed_are_not_counted(bootstrap: str) -> None:
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic("small", configs={"max.message.bytes": "1000"})
    producer = ottla.Producer(bootstrap, batch_bytes=100)
    audit = ProducerAudit(producer)
    producer.send("small", b"v", timestamp_ms=0).wait()
    producer.send("small", bytes(5_000), timestamp_ms=0)
    with pytest.raises(MessagesNotDelivered):
        audit.close()
    producer.close()
    assert counted(bootstrap, "small") == {0: 1}


def test_counts_of_a_topic_with_append_times_are_by_the_brokers_time(bootstrap: str) -> None:
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic("appended", configs={"message.timestamp.type": "LogAppendTime"})
    with ottla.Producer(bootstrap) as producer, ProducerAudit(producer):
        receipt = producer.send("appended", b"v", timestamp_ms=0).wait()
    assert receipt.timestamp_ms > 0
    assert counted(bootstrap, "appended") == {receipt.timestamp_ms // TEN_MINUTES_MS * TEN_MINUTES_MS: 1}


def test_counts_are_reported_while_the_producer_runs(bootstrap: str) -> None:
    with ottla.Producer(bootstrap) as producer, ProducerAudit(producer, interval_ms=50):
        producer.send("going-on", b"v", timestamp_ms=0)
        eventually(lambda: counted(bootstrap, "going-on"), lambda seen: seen == {0: 1})
        producer.send("going-on", b"v", timestamp_ms=0)
        eventually(lambda: counted(bootstrap, "going-on"), lambda seen: seen == {0: 2})
        assert ends(bootstrap, "going-on") == [False]


def test_coroutines_are_counted_too(bootstrap: str) -> None:
    async def send() -> None:
        async with ottla.aio.Producer(bootstrap) as producer, AioProducerAudit(producer) as audit:
            await asyncio.gather(*(producer.send("aio", b"v", timestamp_ms=0) for _ in range(50)))
            await audit.publish()
            assert await asyncio.to_thread(counted, bootstrap, "aio") == {0: 50}
            await producer.send("aio", b"v", timestamp_ms=0)

    asyncio.run(send())
    assert counted(bootstrap, "aio") == {0: 51}
    assert ends(bootstrap, "aio") == [True]


def test_confluents_producer_is_counted_and_keeps_its_interface(bootstrap: str) -> None:
    reported: list[Any] = []
    config: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
    with ConfluentProducer(confluent_kafka.Producer(config), admin=AdminClient(config)) as producer:
        for number in range(100):
            producer.produce(
                "confluent",
                b"v",
                b"k",
                timestamp=1 + number * 10_000,
                headers=[("h", b"1")],
                on_delivery=lambda error, message: reported.append((error, message.key())),
            )
        assert producer.list_topics(timeout=30).topics
        assert producer.flush(60) == 0
        assert reported == [(None, b"k")] * 100
        assert counted(bootstrap, "confluent") == {0: 60, TEN_MINUTES_MS: 40}
        producer.produce("confluent", b"v", timestamp=1)
    assert counted(bootstrap, "confluent") == {0: 61, TEN_MINUTES_MS: 40}
    assert ends(bootstrap, "confluent") == [True]


def test_confluents_producer_makes_the_topic_of_counts_and_never_fails_a_message_for_it() -> None:
    config: dict[str, str | int | float | bool] = {}
    with RunningBroker(settings={"auto.create.topics.enable": "false"}) as broker:
        config["bootstrap.servers"] = broker.bootstrap
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("made")
        untold = ConfluentProducer(confluent_kafka.Producer(config))
        untold.produce("made", b"v", timestamp=1)
        assert untold.flush(60) == 0
        with pytest.raises(CountsNotSent):
            untold.close(60)
        with ConfluentProducer(confluent_kafka.Producer(config), admin=AdminClient(config)) as producer:
            producer.produce("made", b"v", timestamp=1)
        assert counted(broker.bootstrap, "made") == {0: 1}
        assert ends(broker.bootstrap, "made") == [True]
        with Cluster(broker.bootstrap) as cluster:
            found = describe_configs(cluster, ConfigResource(ResourceType.TOPIC, AUDIT_TOPIC))
            assert found["cleanup.policy"].value == "compact,delete"
        untold.close(60)
        assert counted(broker.bootstrap, "made") == {0: 2}


def test_counter_reports_no_end_when_its_producer_was_not_settled(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ottla.Producer(bootstrap) as producer:
        audit = ProducerAudit(producer)
        producer.send("unsettled", b"v", timestamp_ms=0).wait()

        def flush(_: float | None = None) -> None:
            raise CallTimedOut("not everything is acknowledged")

        with monkeypatch.context() as patch:
            patch.setattr(producer, "flush", flush)
            with pytest.raises(CallTimedOut):
                audit.close()
    assert counted(bootstrap, "unsettled") == {0: 1}
    assert ends(bootstrap, "unsettled") == [False]


KILLED = """
import sys, time, ottla
from ottla.audit import ProducerAudit
producer = ottla.Producer(sys.argv[1])
audit = ProducerAudit(producer, interval_ms=3_600_000)
for _ in range(10):
    producer.send("killed", b"v", timestamp_ms=0)
producer.flush()
audit.publish()
for _ in range(5):
    producer.send("killed", b"v", timestamp_ms=0)
producer.flush()
print("all is stored", flush=True)
time.sleep(3_600)
"""


def test_killed_process_may_count_too_little_and_never_too_much(bootstrap: str) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, bootstrap], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "all is stored\n"
        process.send_signal(signal.SIGKILL)
    assert counted(bootstrap, "killed") == {0: 10}, "15 are stored"
    assert ends(bootstrap, "killed") == [False]


def test_topic_of_counts_keeps_the_newest_report(bootstrap: str) -> None:
    with ottla.Producer(bootstrap) as producer, ProducerAudit(producer) as audit:
        producer.send("configured", b"v")
        audit.publish()
    with Cluster(bootstrap) as cluster:
        found = describe_configs(cluster, ConfigResource(ResourceType.TOPIC, AUDIT_TOPIC))
        assert found["cleanup.policy"].value == "compact,delete"
