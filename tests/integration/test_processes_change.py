"""`ottla serve --processes` with another number than before: every partition, group and producer continues."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer

from ottla import Consumer
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.command_line import ottla
from tests.eventually import eventually
from tests.integration.test_serve_processes import PARTITIONS_COUNT, TOPIC, create_topic, leaders_of
from tests.running_processes import ENDS_WITHIN_S, SETTINGS, Processes, processes

GROUP = "continues"
Placed = dict[tuple[int, int], tuple[bytes | None, bytes | None]]


class Sending:
    """An idempotent producer that outlives the brokers, and where each of its records is."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 200}
        )
        self.placed: Placed = {}
        self.errors: list[object] = []

    def send(self, name: str, count: int) -> None:
        for number in range(count):
            key = b"key %d" % (number % 11)
            value = f"{name} {number}".encode()
            self._producer.produce(TOPIC, value, key, number % PARTITIONS_COUNT, on_delivery=self._on_delivery)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(ENDS_WITHIN_S) == 0
        assert not self.errors

    def _on_delivery(self, error: object, message: object) -> None:
        if error is not None:
            self.errors.append(error)
            return
        place = (message.partition(), message.offset())  # type: ignore[attr-defined]
        assert place not in self.placed
        self.placed[place] = (message.key(), message.value())  # type: ignore[attr-defined]


def records_at(bootstrap: str, count: int) -> Placed:
    """All records of the topic by their places, as a consumer without a group's progress reads them."""
    found: Placed = {}
    with Consumer(bootstrap, group=f"all-{count}", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([TOPIC])
        while len(found) < count:
            messages = consumer.poll_many(count, ENDS_WITHIN_S * 1_000)
            assert messages, f"only {len(found)} of {count} came in time"
            found.update({(each.partition, each.offset): (each.key, each.value) for each in messages})
    return found


def take(bootstrap: str, count: int) -> Counter[tuple[int, int]]:
    """The next records of the group, which it commits."""
    found: Counter[tuple[int, int]] = Counter()
    with Consumer(bootstrap, group=GROUP, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        while found.total() < count:
            messages = consumer.poll_many(count - found.total(), ENDS_WITHIN_S * 1_000)
            assert messages, f"only {found.total()} of {count} came in time"
            found.update((each.partition, each.offset) for each in messages)
        consumer.commit()
    return found


def epochs_of(bootstrap: str) -> Mapping[int, int]:
    with Cluster(bootstrap) as cluster:
        (topic,) = Admin(cluster).describe_topics([TOPIC])
        return {each.partition: each.leader_epoch for each in topic.partitions.values()}


def leaders_are(bootstrap: str, brokers_count: int) -> None:
    """Evenly: as many of each broker."""
    each = PARTITIONS_COUNT // brokers_count
    wanted = dict.fromkeys(range(brokers_count), each)
    eventually(lambda: Counter(leaders_of(bootstrap).values()), lambda seen: seen == wanted)


def start_alone(running: Processes, bootstrap: str) -> None:
    running.arguments = ("--listen", bootstrap, "--processes", "1")
    running.launch()
    eventually(lambda: "broker.ready" in running.log)


def test_everything_continues_from_one_to_three_to_two_to_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = dict(each.split("=", 1) for each in SETTINGS[1::2])
    with RunningBroker(data, listen="127.0.0.1:0", settings=settings) as broker:
        create_topic(broker.bootstrap)
        alone = Sending(broker.bootstrap)
        alone.send("alone", 120)
        alone.flush()
        taken = take(broker.bootstrap, 50)
        epochs = epochs_of(broker.bootstrap)
    with processes(data, "--listen", "127.0.0.1:0", "--processes", "3") as running:
        running.start()
        refused = ottla("backup", tmp_path / "backup", "--data-dir", data, status=1)
        assert f"`ottla serve --data-dir {data} --processes 1`" in refused.err
        leaders_are(running.bootstrap, 3)
        assert records_at(running.bootstrap, 120) == alone.placed
        assert any(epoch > epochs[index] for index, epoch in epochs_of(running.bootstrap).items())
        taken += take(running.bootstrap, 30)
        sending = Sending(running.bootstrap)
        sending.send("of three", 60)
        sending.flush()
        assert running.stop() == 0
        # Its sequences continue at brokers that have other partitions now.
        sending.send("for two", 60)
        running.arguments = ("--listen", "127.0.0.1:0", "--processes", "2")
        running.start()
        sending.flush()
        assert not (data / "processes" / "broker-2").exists()
        leaders_are(running.bootstrap, 2)
        assert records_at(running.bootstrap, 240) == alone.placed | sending.placed
        taken += take(running.bootstrap, 60)
        bootstrap = running.bootstrap
        assert running.stop() == 0
        start_alone(running, bootstrap)
        # The former one knows the ports of two brokers, which are gone: librdkafka looks there for minutes.
        last = Sending(bootstrap)
        last.send("for one", 60)
        last.flush()
        leaders_are(bootstrap, 1)
        sent = alone.placed | sending.placed | last.placed
        assert records_at(bootstrap, 300) == sent
        taken += take(bootstrap, 300 - taken.total())
        # Each record once: the group's commits are those of its only member.
        assert taken == Counter(dict.fromkeys(sent, 1))
        assert not list((data / "processes").glob("broker-*"))
        assert running.stop() == 0
    # It is a standalone broker's again, and can be copied as the refusal said.
    ottla("backup", tmp_path / "backup", "--data-dir", data)
    with RunningBroker(data, listen=bootstrap, settings=settings):
        leaders_are(bootstrap, 1)


def test_killed_brokers_lose_nothing_when_their_number_changes(tmp_path: Path) -> None:
    with processes(tmp_path / "data", "--listen", "127.0.0.1:0", "--processes", "3") as running:
        running.start()
        create_topic(running.bootstrap)
        sending = Sending(running.bootstrap)
        sending.send("before", 60)
        sending.flush()
        running.kill()
        # Brokers of the former supervisor still run: the next one stops them before it changes their number.
        running.arguments = ("--listen", "127.0.0.1:0", "--processes", "2")
        running.start()
        sending.send("after", 60)
        sending.flush()
        leaders_are(running.bootstrap, 2)
        assert records_at(running.bootstrap, 120) == sending.placed
        assert re.search(r"brokers\.resized .*moved_count=2 copied_bytes=0", running.log), running.log
        assert running.stop() == 0
