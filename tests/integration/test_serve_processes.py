"""`ottla serve --processes`: several brokers with one port, as a user runs them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla import Consumer
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.command_line import ottla, ottla_process
from tests.eventually import eventually
from tests.running_processes import ENDS_WITHIN_S, Processes, processes

TOPIC = "divided"
PARTITIONS_COUNT = 6


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    data_dir = tmp_path_factory.mktemp("three") / "data"
    with processes(data_dir, "--listen", "127.0.0.1:0", "--processes", "3") as found:
        found.start()
        create_topic(found.bootstrap)
        yield found
        assert found.stop() == 0
        assert found.pids == {}


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS_COUNT, 1)])[TOPIC].result()
    # The broker that made it answers before the others have followed.
    eventually(lambda: all(len(leaders_of(each)) == PARTITIONS_COUNT for each in addresses_of(bootstrap)))


def addresses_of(bootstrap: str) -> list[str]:
    with Cluster(bootstrap) as cluster:
        return [str(each.address) for each in Admin(cluster).describe_cluster().brokers.values()]


def leaders_of(bootstrap: str) -> dict[int, int]:
    with Cluster(bootstrap) as cluster:
        (topic,) = Admin(cluster).describe_topics([TOPIC])
        return {each.partition: each.leader_id for each in topic.partitions.values()}


class Acknowledged:
    """What a producer of librdkafka has sent, and what was acknowledged to it."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self.values: set[bytes] = set()
        self.errors: list[object] = []

    def send(self, values: Sequence[bytes]) -> None:
        for number, value in enumerate(values):
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS_COUNT, on_delivery=self._on_delivery)

    def flush(self) -> None:
        assert self._producer.flush(ENDS_WITHIN_S) == 0
        assert not self.errors

    def _on_delivery(self, error: object, message: object) -> None:
        if error is None:
            self.values.add(message.value())  # type: ignore[attr-defined]
        else:
            self.errors.append(error)


def values_in(bootstrap: str, count: int) -> set[bytes]:
    """As a group of Ottla's own client reads them."""
    found: set[bytes] = set()
    with Consumer(bootstrap, group=f"readers-of-{count}", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([TOPIC])
        while len(found) < count:
            messages = consumer.poll_many(count, ENDS_WITHIN_S * 1_000)
            assert messages, f"only {len(found)} of {count} came in time"
            found.update(each.value for each in messages if each.value is not None)
    return found


def test_clients_at_the_shared_port_use_all_brokers(three: Processes) -> None:
    leaders = leaders_of(three.bootstrap)
    assert {*leaders.values()} == {0, 1, 2}
    own = addresses_of(three.bootstrap)
    assert len({*own, three.bootstrap}) == 4
    # Each of them is one that clients may name, too.
    assert [leaders_of(address) for address in own] == [leaders] * 3


def test_killed_broker_is_back_with_its_partitions_and_everything_that_was_acknowledged(three: Processes) -> None:
    sent = Acknowledged(three.bootstrap)
    sent.send([b"before %d" % number for number in range(300)])
    sent.flush()
    leaders, pids = leaders_of(three.bootstrap), three.pids
    killed = leaders[0]
    os.kill(pids[killed], signal.SIGKILL)
    sent.send([b"after %d" % number for number in range(300)])
    sent.flush()
    assert eventually(lambda: leaders_of(three.bootstrap), lambda seen: seen == leaders)
    assert {node_id for node_id, pid in three.pids.items() if pid != pids[node_id]} == {killed}
    assert f"process.ended broker={killed} pid={pids[killed]} how=SIGKILL" in three.log
    assert len(sent.values) == 600
    assert values_in(three.bootstrap, 600) >= sent.values


def test_status_finds_nothing_wrong(three: Processes) -> None:
    assert json.loads(ottla("cluster", "status", "--json", "-b", three.bootstrap).out)["is_well"]


def test_killed_supervisor_leaves_the_brokers_and_the_next_one_keeps_them(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("log.segment.bytes=1048576\n")
    flags = ("--listen", "127.0.0.1:0", "--config", str(config))
    with processes(tmp_path / "data", *flags, "--processes", "2") as running:
        running.start()
        create_topic(running.bootstrap)
        sent, bootstrap, pids = Acknowledged(running.bootstrap), running.bootstrap, running.pids
        running.kill()
        sent.send([b"without a supervisor %d" % number for number in range(60)])
        sent.flush()
        running.start()
        assert (running.bootstrap, running.pids) == (bootstrap, pids)
        # A broker that the first supervisor started is watched by this one.
        os.kill(pids[1], signal.SIGKILL)
        sent.send([b"after it %d" % number for number in range(60)])
        sent.flush()
        assert running.pids[0] == pids[0]
        pids = running.pids
        running.kill()
        config.write_text("log.segment.bytes=2097152\n")
        # Brokers with other settings are stopped, in order.  Without the flag there are as many as before.
        running.arguments = flags
        running.start()
        assert running.bootstrap == bootstrap
        assert {*running.pids} == {0, 1}
        assert not {*running.pids.values()} & {*pids.values()}
        for node_id, pid in pids.items():
            assert f"process.ended broker={node_id} pid={pid} how=stopped" in running.log
        assert values_in(running.bootstrap, 120) == sent.values
        assert running.stop(signal.SIGINT) == 0
        assert running.pids == {}


def test_broker_that_was_not_ready_when_its_supervisor_died_is_started_again(tmp_path: Path) -> None:
    with processes(tmp_path / "data", "--listen", "127.0.0.1:0", "--processes", "2") as running:
        running.launch()
        eventually(lambda: len(running.pids) == 2)
        running.kill()
        former = running.pids
        running.start()
        assert not {*running.pids.values()} & {*former.values()}
        assert running.stop() == 0


def test_directory_of_a_standalone_broker_gets_further_ones(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data", listen="127.0.0.1:0") as broker:
        create_topic(broker.bootstrap)
        sent = Acknowledged(broker.bootstrap)
        sent.send([b"alone %d" % number for number in range(60)])
        sent.flush()
    with processes(tmp_path / "data", "--listen", "127.0.0.1:0", "--processes", "2") as running:
        running.start()
        assert values_in(running.bootstrap, 60) == sent.values
        # Another supervisor, or a broker alone, is refused and changes nothing.
        for processes_count in ("1", "2"):
            other = ("serve", "--data-dir", str(running.data_dir), "--processes", processes_count)
            assert "is in use by process" in ottla_process(*other, status=1).err
        assert running.stop() == 0


def test_taken_port_is_reported_with_its_holder(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "alone", listen="127.0.0.1:0") as broker:
        taken = ("--listen", broker.bootstrap, "--processes", "2")
        refused = ottla_process("serve", "--data-dir", tmp_path / "data", *taken, status=1)
    assert f"error: cannot listen on {broker.bootstrap}: Address already in use" in refused.err
    assert "a Kafka broker answers at" in refused.err


def test_broker_that_cannot_start_ends_all_with_its_error(tmp_path: Path) -> None:
    broker_1 = tmp_path / "data" / "processes" / "broker-1"
    broker_1.mkdir(parents=True)
    (broker_1 / "letters").touch()
    with processes(tmp_path / "data", "--listen", "127.0.0.1:0", "--processes", "2") as running:
        running.launch()
        assert eventually(lambda: running.process and running.process.poll()) == 1
        assert running.pids == {}
        assert f"error: {broker_1} is not a data directory" in running.log
        assert "process.not_started" in running.log
